"""The Protocols that stages need, each as narrow as its stage; adapters provide them, the command wires them."""
