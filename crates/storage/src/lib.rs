//! Physical bytes: POSIX files, spaces, checksums, name translation.
