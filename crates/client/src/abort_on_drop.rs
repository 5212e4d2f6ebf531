//! [`AbortOnDrop`]: a task that is aborted when its owner is dropped.
//!
//! It exists so that no task outlives the operation it works for.

use tokio::task::{JoinError, JoinHandle};

/// A task that is aborted when this value is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    /// Spawns a task on the current runtime.
    pub(crate) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// Waits for the result of the task.
    ///
    /// # Errors
    /// [`JoinError`] if the task panicked.
    pub(crate) async fn join(mut self) -> Result<T, JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_task_is_aborted_with_its_owner() {
        let (held, ended) = oneshot::channel::<()>();
        let task = AbortOnDrop::spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(task);
        assert!(ended.await.is_err());
        assert_eq!(AbortOnDrop::spawn(async { 7 }).join().await.ok(), Some(7));
    }
}
