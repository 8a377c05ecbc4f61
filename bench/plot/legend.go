package plot

import (
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// entry is one word of the legend with its mark.
type entry struct {
	name  string
	line  draw.LineStyle
	glyph draw.GlyphStyle // without a shape: no mark
	width vg.Length
}

// row is one line of the legend.
type row []entry

const sample = 22 // pixels of line before a name

// roomy allows for the readers of an SVG, whose fonts may be wider than the font measured here.
const roomy = 1.2

// legend lays the names out in rows of a width: each target once, then the other marks of the panels.
func (f Figure) legend(width vg.Length) (rows []row) {
	used := width // so that the first entry begins a row
	for _, e := range f.entries() {
		e.width = px(sample+6+14) + roomy*letters(11, false).Width(e.name)
		if used+e.width > width {
			rows = append(rows, nil)
			used = 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		used += e.width
	}
	return rows
}

func (f Figure) entries() (all []entry) {
	seen := map[string]bool{}
	front, failed := false, false
	for _, p := range f.panels {
		for _, l := range p.lines {
			for _, q := range l.points {
				failed = failed || q.failed
			}
			if l.front {
				front = true
				continue
			}
			if !seen[l.name] && !l.bare {
				line, glyph := look(l.index)
				all = append(all, entry{name: l.name, line: line, glyph: glyph})
			}
			seen[l.name] = true
		}
	}
	if front {
		all = append(all, entry{name: "Pareto front", line: frontLook()})
	}
	if failed {
		all = append(all, entry{name: "requests failed", glyph: failedLook()})
	}
	return all
}

func (r row) draw(c draw.Canvas, y vg.Length) {
	x := c.Min.X
	style := letters(11, false)
	style.YAlign = draw.YCenter
	for _, e := range r {
		if e.line.Color != nil {
			c.StrokeLine2(e.line, x, y, x+px(sample), y)
		}
		if e.glyph.Shape != nil {
			c.DrawGlyph(e.glyph, vg.Point{X: x + px(sample)/2, Y: y})
		}
		c.FillText(style, vg.Point{X: x + px(sample+6), Y: y}, e.name)
		x += e.width
	}
}
