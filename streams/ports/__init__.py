"""The Protocols that stages need, one module a stage, each as narrow as its stage; adapters provide them, the command wires them."""
