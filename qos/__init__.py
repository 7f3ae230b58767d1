"""The domain: names, quantities, floors. Pure: no I/O, no clock, standard library only (qos.api aside)."""
