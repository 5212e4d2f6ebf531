//! Fuzz targets for every decoder and state machine.
