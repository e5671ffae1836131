//! The demo's job: how many primes are there below a bound? Each subprogram
//! counts those of one stretch; the sum is checked with a sieve.

/// Numbers a subprogram looks at. With 240 subprograms the last one takes
/// about 0.3 s of a core.
pub(super) const STRETCH: u32 = 40_000;

/// Counts by trial division, for any `awk`.
pub(super) const PROGRAM: &str = "\
# Counts the primes in [from, from + many), by trial division.
BEGIN {
    for (n = from; n < from + many; n++) {
        if (n < 2) continue
        prime = (n == 2 || n % 2 == 1)
        for (d = 3; prime && d * d <= n; d += 2) if (n % d == 0) prime = 0
        count += prime
    }
    print count + 0
}
";

/// How many primes are below `bound` (sieve of Eratosthenes).
pub(super) fn primes_below(bound: u32) -> u64 {
    let bound = bound as usize;
    let mut composite = vec![false; bound];
    let mut count = 0;
    for n in 2..bound {
        if composite[n] {
            continue;
        }
        count += 1;
        for multiple in (n * n..bound).step_by(n) {
            composite[multiple] = true;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_sieve_knows_the_first_primes() {
        assert_eq!([0, 2, 3, 10, 100, 1_000].map(primes_below), [0, 0, 1, 4, 25, 168]);
    }

    #[test]
    fn the_program_counts_what_the_sieve_counts() {
        let count = |from: u32, many: u32| -> u64 {
            let output = Command::new("awk")
                .args(["-v", &format!("from={from}"), "-v", &format!("many={many}"), PROGRAM])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };
        assert_eq!(count(0, 500) + count(500, 500), primes_below(1_000));
    }
}
