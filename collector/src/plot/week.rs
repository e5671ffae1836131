//! When in the week workstations stand idle.

use gleaner_figure::HeatMap;

use super::{Scope, known};
use crate::timeline::{PeriodState, Timeline};
use crate::week::{Calendar, HOURS};

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

pub(super) fn chart(timelines: &[&Timeline], scope: &Scope) -> HeatMap {
    let hours = idle_hours(timelines, scope);
    let share = |[idle, busy]: &[f64; 2]| {
        let all = idle + busy;
        (all > 0.0).then(|| 100.0 * idle / all)
    };
    HeatMap {
        title: "When workstations stand idle".into(),
        subtitle: scope.spoken(),
        rows: DAYS.map(str::to_owned).to_vec(),
        columns: (0..24).map(|hour| format!("{hour:02}")).collect(),
        column_label: "hour of the day (local time)".into(),
        values: hours.chunks(24).map(|day| day.iter().map(share).collect()).collect(),
        value_label: "known time that is idle (%)".into(),
        range: Some((0.0, 100.0)),
        print: Some(0),
        missing_name: "unknown".into(),
        ..HeatMap::default()
    }
}

/// Idle and busy nanoseconds in each hour of the week.
fn idle_hours(timelines: &[&Timeline], scope: &Scope) -> [[f64; 2]; HOURS] {
    let calendar = Calendar::new(&scope.zone);
    let mut hours = [[0.0; 2]; HOURS];
    for period in timelines.iter().flat_map(|timeline| known(timeline, scope.span)) {
        let (mut at, end) = (period.start, period.end());
        while at < end {
            let (hour, next) = calendar.hour(at);
            let until = next.min(end);
            hours[hour][usize::from(period.state == PeriodState::Busy)] += (until.0 - at.0) as f64;
            at = until;
        }
    }
    hours
}
