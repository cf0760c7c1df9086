//! Two processes on one device.
