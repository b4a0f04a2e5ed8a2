"""How JAX does it: the only room that calls JAX's collectives, and the only one that knows JAX's versions."""
