//! How fast this machine is, measured once in its life.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gleaner_shell::clock::Clock;

/// How long one measurement runs: short enough to bear at an owner's desk.
const SPAN: Duration = Duration::from_millis(2);

/// The best of so many is least disturbed by others.
const ROUNDS: u32 = 3;

const STEPS: u64 = 10_000;

/// Millions of integer steps a second on one core. A machine whose processor
/// or kernel has changed is measured again.
pub(crate) fn of_this_machine(data: &Path) -> f32 {
    let path = data.join("speed");
    let machine = machine();
    if let Ok(text) = fs::read_to_string(&path)
        && let Some((speed, of)) = text.split_once('\n')
        && of.trim_end() == machine
        && let Ok(speed) = speed.parse::<f32>()
        && speed.is_finite()
        && speed >= 0.0
    {
        return speed;
    }
    let speed = (0..ROUNDS).map(|_| measure()).fold(0.0, f32::max);
    let text = format!("{speed}\n{machine}\n");
    // A speed that is not kept is measured again.
    let _ = gleaner_shell::atomic::replace(&path, text.as_bytes(), gleaner_shell::atomic::PUBLIC);
    speed
}

fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find(|line| line.starts_with("model name")).unwrap_or("unknown");
    format!("{} {}", model, rustix::system::uname().release().to_string_lossy())
}

fn measure() -> f32 {
    let begin = Clock.now();
    let (mut state, mut steps) = (1_u64, 0);
    loop {
        for _ in 0..STEPS {
            // A step of xorshift64: three shifts and three xors in a chain.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        steps += STEPS;
        let spent = Clock.now().since(begin);
        if spent >= SPAN {
            std::hint::black_box(state);
            #[expect(clippy::cast_possible_truncation, reason = "a speed needs few digits")]
            return (steps as f64 / spent.as_secs_f64() / 1e6) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_measured_once() {
        let home = tempfile::tempdir().unwrap();
        let speed = of_this_machine(home.path());
        assert!(speed > 1.0);
        assert!((of_this_machine(home.path()) - speed).abs() < f32::EPSILON);
    }
}
