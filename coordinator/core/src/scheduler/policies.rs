//! The policies, by name.

mod agreements;
mod apm;
mod conservative;
mod demand;
mod easy;
mod equipartition;
mod fair;
mod fcfs;
mod folding;
mod gleaner;
mod koala;
mod partition;
mod pending_first;
mod posner;
mod profit;
mod uniform;

use super::policy::Named;

/// All there are: a new one is a file and a line.
pub static ALL: &[Named] = &[
    fair::FAIR,
    fcfs::FCFS,
    easy::EASY,
    conservative::CONSERVATIVE,
    equipartition::EQUIPARTITION,
    folding::FOLDING,
    apm::APM,
    uniform::UNIFORM,
    profit::SIMPLE,
    profit::LAZY,
    koala::PRA_FPSMA,
    koala::PRA_EGS,
    koala::PWA_FPSMA,
    koala::PWA_EGS,
    pending_first::EARLIEST_STARTED,
    pending_first::LATEST_STARTED,
    pending_first::MOST_TO_GIVE,
    pending_first::FEWEST_ASKED,
    demand::SDF,
    demand::EEMA,
    demand::M_LIDA,
    demand::PWP,
    gleaner::GLEANER,
    posner::MIN_AGREEMENT,
    posner::MIN_STEAL,
    posner::MIN_POOL,
    posner::PREF_AGREEMENT,
    posner::PREF_STEAL,
    posner::PREF_POOL,
    posner::AVERAGE_AGREEMENT,
    posner::AVERAGE_STEAL,
    posner::AVERAGE_POOL,
    posner::EASY,
    posner::BACKFILL,
    posner::FIFO,
    posner::SHORTEST,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::policy::{PARAMETERS, Parameters, named};
    use super::ALL;

    #[test]
    fn every_policy_has_a_name_of_its_own_a_line_and_a_source() {
        let names: BTreeSet<_> = ALL.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), ALL.len());
        for it in ALL {
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(it.name.chars().all(is_plain), "{}", it.name);
            assert!(!it.line.is_empty() && it.line.len() < 100, "{}", it.name);
            assert!(!it.source.is_empty(), "{}", it.name);
            let _ = (named(it.name).expect("found by its name").build)(&Parameters::default());
        }
        assert!(named("no-such-policy").is_none());
    }

    #[test]
    fn every_parameter_is_told_with_its_default_and_the_policies_that_look_at_it() {
        let of: BTreeSet<_> = PARAMETERS.iter().flat_map(|it| it.policies).collect();
        assert!(of.iter().all(|name| named(name).is_some()), "{of:?}");
        let Parameters { kept_free, tries_max, barrier, change_cost, overtaken_max } =
            Parameters::default();
        let spans = [barrier, change_cost, overtaken_max].map(|span| format!("{span:?}"));
        let numbers = [kept_free.to_string(), tries_max.to_string()];
        let defaults: Vec<_> = numbers.into_iter().chain(spans).collect();
        let told: Vec<_> = PARAMETERS.iter().map(|it| it.default).collect();
        assert_eq!(told, defaults);
    }
}
