//! Work on several threads at once.

use std::thread;

/// How many threads the machine runs at once.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Does something with each item, on at most so many threads, neighbours on the
/// same one. The answers are in the items' order, whatever finished first.
pub fn side_by_side<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    threads: usize,
    each: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let mut items: Vec<T> = items.into_iter().collect();
    if items.len() <= 1 {
        return items.into_iter().map(each).collect();
    }
    let share = items.len().div_ceil(threads.max(1));
    thread::scope(|scope| {
        let mut working = vec![];
        while !items.is_empty() {
            let rest = items.split_off(share.min(items.len()));
            let (share, each) = (std::mem::replace(&mut items, rest), &each);
            working.push(scope.spawn(move || share.into_iter().map(each).collect::<Vec<R>>()));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        working.into_iter().flat_map(join).collect()
    })
}
