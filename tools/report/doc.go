// Package report has what benchmarks share to show their results: what a run was, figures by
// contender and round, goals and whether they are met, statistics, tables in Markdown, charts in
// SVG, and where results and documentation keep them.
package report
