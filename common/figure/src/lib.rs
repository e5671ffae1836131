//! Charts: lines, heat maps and who-ran-where, as SVG and PNG.
