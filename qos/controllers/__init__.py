"""The kernel controllers, one module each: see qos/controller.py for what a module declares."""
