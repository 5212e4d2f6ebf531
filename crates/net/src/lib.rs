//! Listeners, loops, doors, buffers and the sockets' system calls.
