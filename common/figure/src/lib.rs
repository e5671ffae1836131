//! Charts: lines, heat maps and who-ran-where, as SVG, PNG and PDF; and a page of
//! words and charts, as HTML and PDF.
//!
//! ```text
//! LineChart, Panels, HeatMap, Gantt ─► Scene (plain shapes) ─► svg | png | pdf
//!                           Sheet ─┬─► Scene ───────────────────────────┘
//!                                  └─► html
//! ```
//!
//! A chart is plain data. Laying it out gives a [`Scene`], which is pure and can
//! be tested; painting a scene needs no font and no library of the system. The
//! same chart always gives the same bytes of SVG.
//!
//! Knows nothing of workstations: whoever draws brings labels and units.

mod axis;
mod font;
mod gantt;
mod heat;
mod legend;
mod line;
mod palette;
mod panels;
mod pdf;
mod png;
mod render;
mod scene;
mod sheet;
mod svg;

pub use axis::{Axis, Scale, counted};
pub use gantt::{Arrow, Bar, Gantt, GanttKind, Shade};
pub use heat::HeatMap;
pub use line::{LineChart, Look, Series};
pub use palette::{Colour, OKABE_ITO, series_colour};
pub use panels::Panels;
pub use render::{Figure, FigureError, Format, Size};
pub use scene::Scene;
pub use sheet::{Sheet, SheetPart};
