//! Draws one chart of each kind into a directory, to look at:
//! `cargo run -p gleaner-figure --example gallery -- /tmp/gallery`

use std::path::Path;

use gleaner_figure::{
    Arrow, Axis, Bar, Colour, Figure, FigureError, Gantt, HeatMap, Kind, LineChart, Look,
    OKABE_ITO, Panels, Series, Shade,
};

fn main() -> Result<(), FigureError> {
    let to = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let to = Path::new(&to);
    save(&slowdown(), to, "lines")?;
    save(&survival(), to, "steps")?;
    save(&panels(), to, "panels")?;
    save(&week(), to, "heat")?;
    save(&gantt(), to, "gantt")
}

fn save(figure: &dyn Figure, to: &Path, name: &str) -> Result<(), FigureError> {
    for ending in ["svg", "png"] {
        figure.save(&to.join(format!("{name}.{ending}")), figure.natural_size())?;
    }
    Ok(())
}

fn slowdown_of(workstations: f64) -> Vec<(f64, f64)> {
    let slowdown = |cost: f64| 0.4 * cost + cost.powf(3.6 - workstations / 100.0) / 46_000.0;
    (0..=100).map(f64::from).map(|cost| (cost, slowdown(cost))).collect()
}

fn slowdown() -> LineChart {
    let series = |workstations: u32, printed: [f64; 4]| {
        let points = slowdown_of(f64::from(workstations));
        let band = points.iter().map(|(x, y)| (*x, y * 0.85, y * 1.12)).collect();
        Series::new(format!("{workstations} workstations"), points)
            .with_band(band)
            .with_references([1.0, 10.0, 50.0, 99.0].into_iter().zip(printed).collect())
    };
    LineChart {
        title: "Slowdown by the cost of a migration".into(),
        subtitle: "mean of all executions of four programs; bands: 95 % of the periods".into(),
        x_axis: Axis::linear("cost of a migration (s)").from_to(0.0, 100.0),
        y_axis: Axis::linear("slowdown (%)"),
        series: vec![
            series(30, [0.41, 4.83, 69.36, 343.85]),
            series(50, [0.4, 5.62, 50.68, 145.89]),
            series(100, [0.32, 4.62, 40.86, 119.14]),
        ],
        reference_name: "printed in the thesis (Table 12)".into(),
    }
}

fn survival() -> LineChart {
    let curve = |mean: f64| -> Vec<(f64, f64)> {
        (0..60)
            .map(|step| 10_f64.powf(f64::from(step) / 12.0 + 0.5))
            .map(|s| (s, (-s / mean).exp()))
            .collect()
    };
    let ticks =
        [(10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3_600.0, "1 h"), (86_400.0, "1 d")];
    LineChart {
        title: "How long periods last".into(),
        x_axis: Axis::log("length")
            .with_ticks(ticks.map(|(at, label)| (at, label.to_owned())).to_vec()),
        y_axis: Axis::linear("part that lasts longer").from_to(0.0, 1.0),
        series: vec![
            Series::new("idle", curve(9_000.0)).looking(Look::Steps),
            Series::new("busy", curve(1_500.0)).looking(Look::Steps),
        ],
        ..LineChart::default()
    }
}

fn panels() -> Panels {
    let of = |workstations: u32| {
        let times = ["night", "morning", "afternoon", "evening"];
        let series = times.iter().zip(1_u32..).map(|(name, place)| {
            let points = slowdown_of(f64::from(workstations) + f64::from(place * 4));
            Series::new(*name, points.into_iter().step_by(10).collect()).looking(Look::Dotted)
        });
        LineChart {
            title: format!("{workstations} workstations"),
            x_axis: Axis::linear("cost of a migration (s)"),
            y_axis: Axis::linear("slowdown (%)"),
            series: series.collect(),
            ..LineChart::default()
        }
    };
    Panels {
        title: "Slowdown by the time of day".into(),
        columns: 3,
        same_axes: true,
        charts: [30, 50, 100].map(of).to_vec(),
        ..Panels::default()
    }
}

fn week() -> HeatMap {
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let share = |day: usize, hour: usize| {
        let work = if day < 5 { 0.75 } else { 0.2 };
        let noon = (hour as f64 - 14.0) / 5.0;
        (day, hour != 3 || day != 6).1.then(|| 100.0 - 100.0 * work * (-noon * noon).exp())
    };
    HeatMap {
        title: "When workstations stand idle".into(),
        subtitle: "170 workstations, 1 September 1993 to 28 February 1994".into(),
        rows: days.map(str::to_owned).to_vec(),
        columns: (0..24).map(|hour| format!("{hour:02}")).collect(),
        column_label: "hour of the day (local time)".into(),
        values: (0..7).map(|day| (0..24).map(|hour| share(day, hour)).collect()).collect(),
        value_label: "time idle (%)".into(),
        range: Some((0.0, 100.0)),
        print: Some(0),
        missing_name: "unknown".into(),
        ..HeatMap::default()
    }
}

fn gantt() -> Gantt {
    let mut chart = Gantt {
        title: "Who ran where".into(),
        subtitle: "ring of 5 ranks on 8 workstations, a migration costs 10 s".into(),
        time_axis: Axis::linear("time (s)"),
        lanes: (1..=8).map(|number| format!("ws-{number:03}")).collect(),
        bar_kinds: vec![
            Kind::new("computing", OKABE_ITO[0]),
            Kind::new("blocked", OKABE_ITO[5]),
            Kind::new("moving", OKABE_ITO[4]),
        ],
        arrow_kinds: vec![
            Kind::new("message", Colour(110, 110, 110)),
            Kind::new("move", OKABE_ITO[1]),
        ],
        shade_kinds: vec![Kind::new("owner busy", Colour(222, 222, 222))],
        ..Gantt::default()
    };
    for lane in 0..5 {
        for part in 0..6_u32 {
            let start = f64::from(part) * 40.0;
            let label = format!("rank {lane}");
            let blocked = start + 28.0 + lane as f64;
            chart.bars.push(Bar { lane, start, end: blocked, kind: 0, label });
            chart.bars.push(Bar {
                lane,
                start: blocked,
                end: start + 40.0,
                kind: 1,
                ..Bar::default()
            });
            let to = ((lane + 1) % 5, start + 36.0);
            chart.arrows.push(Arrow { from: (lane, blocked), to, kind: 0 });
        }
    }
    chart.shades.push(Shade { lane: 2, start: 240.0, end: 300.0, kind: 0 });
    chart.shades.push(Shade { lane: 6, start: 0.0, end: 170.0, kind: 0 });
    chart.bars.push(Bar { lane: 7, start: 240.0, end: 250.0, kind: 2, ..Bar::default() });
    chart.bars.push(Bar { lane: 7, start: 250.0, end: 300.0, kind: 0, label: "rank 2".into() });
    chart.arrows.push(Arrow { from: (2, 240.0), to: (7, 240.0), kind: 1 });
    chart
}
