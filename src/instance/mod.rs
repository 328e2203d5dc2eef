//! The instance: identity, metadata, the cache on disk, semaphores, status.
