//! Calls on the store from async code, on any runtime.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Error;

/// Runs blocking `work` on the pool of blocking threads of tokio, or without tokio on a thread of its
/// own. If the future is dropped, the work still runs to its end.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (done, receiver) = oneshot::channel();
    // The receiver may have been dropped.
    let work = move || drop(done.send(work()));
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => {
            let thread = std::thread::Builder::new().name("loopstore-rig".into());
            thread.spawn(work).map_err(Error::NoThread)?;
        }
    }
    receiver.await.map_err(|_| Error::Stopped)?
}
