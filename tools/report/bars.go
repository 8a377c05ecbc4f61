package report

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars draws the bars of a chart on its axes.
type bars struct{ Chart }

// barPart is the part of a bar's row that it fills.
const barPart = 0.8

// Plot is plot.Plotter's.
func (c bars) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	all := c.series()
	row := 0.0
	for _, g := range c.Groups {
		for _, b := range g.Bars {
			c.bar(canvas, b, func(v float64) vg.Length { return x(max(v, p.X.Min)) }, y(row), y(row-barPart), g.Limit, all)
			row--
		}
		row-- // a gap
	}
}

// bar draws one bar from top to bottom, with its range, its goal and its text.
func (c bars) bar(canvas draw.Canvas, b Bar, x func(float64) vg.Length, top, bottom vg.Length, limit float64, all []string) {
	from, to, middle := x(0), x(b.Value), (top+bottom)/2
	canvas.FillPolygon(c.colourOf(b.Series, all), []vg.Point{{X: from, Y: bottom}, {X: to, Y: bottom}, {X: to, Y: top}, {X: from, Y: top}})
	canvas.StrokeLine2(rangeStyle(), x(b.Min), middle, x(b.Max), middle)
	end := max(to, x(b.Max))
	if limit > 0 && b.Goal {
		canvas.StrokeLine2(goalStyle(), x(limit), bottom-px(2), x(limit), top+px(2))
		end = max(end, x(limit))
	}
	canvas.FillText(letters(12, false), vg.Point{X: end + px(6), Y: middle}, b.Text)
}

func rangeStyle() draw.LineStyle { return draw.LineStyle{Color: color.Black, Width: px(1)} }
func goalStyle() draw.LineStyle  { return draw.LineStyle{Color: color.Black, Width: px(2)} }

// entry is one mark of the legend with its name.
type entry struct {
	name string
	mark func(c draw.Canvas, left, middle vg.Length)
}

// entries are a row of the legend.
type entries []entry

// Widths in the legend, in px.
const (
	markWidth = 22 // with the gap to the name
	entryGap  = 12
	widest    = 1.15 // of a reader's letters, to Arial's
)

func (e entry) width() vg.Length {
	return px(markWidth+entryGap) + letters(12, false).Width(e.name)*widest
}

func (row entries) draw(c draw.Canvas, middle vg.Length) {
	left := c.Min.X
	for _, e := range row {
		e.mark(c, left, middle)
		c.FillText(letters(12, false), vg.Point{X: left + px(markWidth), Y: middle}, e.name)
		left += e.width()
	}
}

// legend explains colours and marks, in rows of at most that width.
func (c Chart) legend(width vg.Length) (rows []entries) {
	var all entries
	series := c.series()
	for _, s := range series {
		all = append(all, entry{s, func(to draw.Canvas, x, y vg.Length) {
			h := px(6)
			to.FillPolygon(c.colourOf(s, series), []vg.Point{{X: x, Y: y - h}, {X: x + px(16), Y: y - h}, {X: x + px(16), Y: y + h}, {X: x, Y: y + h}})
		}})
	}
	all = append(all, entry{"least–most", func(to draw.Canvas, x, y vg.Length) { to.StrokeLine2(rangeStyle(), x, y, x+px(16), y) }})
	if slices.ContainsFunc(c.Groups, func(g Group) bool { return g.Limit > 0 }) {
		all = append(all, entry{"goal of xpyd", func(to draw.Canvas, x, y vg.Length) {
			to.StrokeLine2(goalStyle(), x+px(8), y-px(8), x+px(8), y+px(8))
		}})
	}
	room := vg.Length(0)
	for _, e := range all {
		if room -= e.width(); len(rows) == 0 || room < 0 {
			rows, room = append(rows, nil), width-e.width()
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
	}
	return rows
}
