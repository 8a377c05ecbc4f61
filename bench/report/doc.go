// Package report is what benchmarks share to tell readers of their results: statistics,
// tables in Markdown, charts in SVG, and where documentation keeps them.
package report
