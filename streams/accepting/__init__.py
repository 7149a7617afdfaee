"""The parts of the accept API: who asks, what a body holds, the writing of many requests at once, routes and answers."""
