//! Short waits for another thread that is about to act. Waking a thread that sleeps takes tens of microseconds, so a
//! waiting thread first spins, then yields, and sleeps only after that.

/// Spins before the thread yields. In a model (shuttle) the thread yields at once.
const SPINS: u32 = if cfg!(shuttle) { 0 } else { 20 };
/// Yields before the thread sleeps. With an idle core, they take about 100 microseconds.
const YIELDS: u32 = if cfg!(shuttle) { 1 } else { 200 };

/// The spins and yields of one wait.
pub(crate) struct SpinWait {
    left: u32,
    yields: u32,
}

impl SpinWait {
    /// Begins a wait. Without `may_yield` the thread sleeps after its spins. That is better with more threads than
    /// cores, where each yield runs a thread that soon waits too.
    pub(crate) fn new(may_yield: bool) -> SpinWait {
        let yields = if may_yield { YIELDS } else { 0 };
        SpinWait { left: SPINS + yields, yields }
    }

    /// Spins or yields once. Returns `false`, without doing so, when it is time to sleep instead.
    pub(crate) fn spin(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.left > self.yields {
            std::hint::spin_loop();
        } else {
            drumlin_env::yield_now();
        }
        self.left -= 1;
        true
    }
}
