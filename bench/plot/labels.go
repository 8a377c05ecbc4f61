package plot

import (
	"image/color"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// labels writes the labels of points beside them, where they cover neither a mark nor another label.
// A label without such a place is left out.
type labels []line

// Plot implements gonum's plot.Plotter.
func (ls labels) Plot(c draw.Canvas, p *gonum.Plot) {
	toX, toY := p.Transforms(&c)
	var taken []vg.Rectangle
	for _, l := range ls {
		for _, q := range l.points {
			taken = append(taken, around(vg.Point{X: toX(q.x), Y: toY(q.y)}, px(4), px(4)))
		}
	}
	for _, l := range ls {
		style := letters(9, false)
		line, _ := look(l.index)
		style.Color = line.Color
		for _, q := range l.points {
			if q.label == "" {
				continue
			}
			size := vg.Point{X: style.Width(q.label), Y: style.Height(q.label)}
			if box, ok := place(vg.Point{X: toX(q.x), Y: toY(q.y)}, size, taken, c.Rectangle); ok {
				taken = append(taken, box)
				c.FillPolygon(veil(), []vg.Point{box.Min, {X: box.Max.X, Y: box.Min.Y}, box.Max, {X: box.Min.X, Y: box.Max.Y}})
				c.FillText(style, box.Min, q.label)
			}
		}
	}
}

// veil keeps a label readable where a line runs below it.
func veil() color.Color { return color.NRGBA{R: 255, G: 255, B: 255, A: 190} }

func around(at vg.Point, dx, dy vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: at.X - dx, Y: at.Y - dy}, Max: vg.Point{X: at.X + dx, Y: at.Y + dy}}
}

// place finds room for a box of a size near a point. It tries above to the right first, as published
// figures do.
func place(at, size vg.Point, taken []vg.Rectangle, within vg.Rectangle) (vg.Rectangle, bool) {
	gap := px(5)
	right, left, middle := at.X+gap, at.X-gap-size.X, at.X-size.X/2
	above, below, level := at.Y+gap, at.Y-gap-size.Y, at.Y-size.Y/2
	for _, min := range []vg.Point{
		{X: right, Y: above}, {X: left, Y: above}, {X: right, Y: below}, {X: left, Y: below},
		{X: middle, Y: above}, {X: middle, Y: below}, {X: right, Y: level}, {X: left, Y: level},
		{X: middle, Y: above + size.Y}, {X: middle, Y: below - size.Y},
	} {
		box := vg.Rectangle{Min: min, Max: min.Add(size)}
		if free(box, taken, within) {
			return box, true
		}
	}
	return vg.Rectangle{}, false
}

func free(box vg.Rectangle, taken []vg.Rectangle, within vg.Rectangle) bool {
	if box.Min.X < within.Min.X || box.Max.X > within.Max.X || box.Min.Y < within.Min.Y || box.Max.Y > within.Max.Y {
		return false
	}
	for _, t := range taken {
		if box.Min.X < t.Max.X && t.Min.X < box.Max.X && box.Min.Y < t.Max.Y && t.Min.Y < box.Max.Y {
			return false
		}
	}
	return true
}
