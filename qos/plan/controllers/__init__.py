"""The kernel controllers, one module each: see qos/plan/controller.py for what a module declares."""
