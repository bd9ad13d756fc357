//! The budget clock and the watchdog that ends a process past it.
