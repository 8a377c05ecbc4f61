package plot

import (
	"fmt"
	"image/color"
	"math"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colours are those of Okabe and Ito without the yellow. Colour-blind readers can tell them apart.
func colours() []color.RGBA {
	return []color.RGBA{
		{R: 0x00, G: 0x72, B: 0xB2, A: 255}, {R: 0xD5, G: 0x5E, B: 0x00, A: 255}, {R: 0x00, G: 0x9E, B: 0x73, A: 255}, {R: 0xCC, G: 0x79, B: 0xA7, A: 255},
		{R: 0xE6, G: 0x9F, B: 0x00, A: 255}, {R: 0x56, G: 0xB4, B: 0xE9, A: 255}, {R: 0x55, G: 0x55, B: 0x55, A: 255},
	}
}

// look is the style of target number index. Targets of the same colour have different marks.
func look(index int) (draw.LineStyle, draw.GlyphStyle) {
	all := colours()
	c := all[index%len(all)]
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.RingGlyph{}}
	return draw.LineStyle{Color: c, Width: px(1.6)}, draw.GlyphStyle{Color: c, Radius: px(3.2), Shape: shapes[index/len(all)%len(shapes)]}
}

// frontLook is the style of the Pareto front.
func frontLook() draw.LineStyle {
	return draw.LineStyle{Color: color.RGBA{A: 140}, Width: px(1.2), Dashes: []vg.Length{px(5), px(3)}}
}

// failedLook marks points at which requests failed.
func failedLook() draw.GlyphStyle {
	return draw.GlyphStyle{Color: color.RGBA{R: 0xC0, A: 255}, Radius: px(6), Shape: cross{}}
}

// cross is gonum's, with lines that show on a mark and on a dark page.
type cross struct{}

// DrawGlyph implements gonum's draw.GlyphDrawer.
func (cross) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: px(2)})
	arm := style.Radius * vg.Length(math.Sqrt2/2)
	for _, slope := range []vg.Length{1, -1} {
		var p vg.Path
		p.Move(vg.Point{X: at.X - arm, Y: at.Y - slope*arm})
		p.Line(vg.Point{X: at.X + arm, Y: at.Y + slope*arm})
		c.Stroke(p)
	}
}

func (p panel) axes() (*gonum.Plot, error) {
	a := gonum.New()
	a.BackgroundColor = nil
	a.Title.Text, a.Title.TextStyle, a.Title.Padding = p.title, centred(letters(11.5, true), draw.YTop), px(6)
	for _, axis := range []struct {
		*gonum.Axis
		label string
		log   bool
	}{{&a.X, p.x, p.logX}, {&a.Y, p.y, p.logY}} {
		label := centred(letters(11, false), draw.YBottom)
		label.Rotation = axis.Label.TextStyle.Rotation
		if axis.log {
			axis.label += ", log scale"
		}
		axis.Label.Text, axis.Label.TextStyle, axis.Label.Padding = axis.label, label, px(4)
		tick := axis.Tick.Label
		tick.Font, tick.Handler = letters(10, false).Font, gonum.DefaultTextHandler
		axis.Tick.Label = tick
		axis.Tick.Marker = ticks{axis.log}
		axis.Padding = px(4)
	}
	if len(p.ticks) > 0 {
		a.X.Tick.Marker = fixed(p.ticks)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	a.Add(grid)
	for _, l := range p.lines {
		if err := l.add(a); err != nil {
			return nil, fmt.Errorf("%s: %w", p.title, err)
		}
	}
	a.Add(labels(p.lines))
	p.bound(a)
	return a, nil
}

func centred(s draw.TextStyle, y draw.YAlignment) draw.TextStyle {
	s.XAlign, s.YAlign = draw.XCenter, y
	return s
}

// wide is how many times the lowest value the highest is where a logarithmic axis begins at a tick.
const wide = 3

// bound sets the ends of the axes: a linear one begins at 0, a long logarithmic one at a tick, and no
// point lies on a border.
func (p panel) bound(a *gonum.Plot) {
	for _, axis := range []struct {
		*gonum.Axis
		log bool
	}{{&a.X, p.logX}, {&a.Y, p.logY}} {
		if math.IsInf(axis.Min, 0) || math.IsInf(axis.Max, 0) { // nothing to draw
			axis.Min, axis.Max = 1, 10
		}
		if axis.log {
			axis.Scale = gonum.LogScale{}
			span := math.Max(math.Pow(axis.Max/axis.Min, 0.08), 1.05)
			low := axis.Min / span
			if axis.Max/axis.Min >= wide {
				low = roundBelow(axis.Min / 1.05) // else the lowest points stand below all numbers
			}
			axis.Min, axis.Max = low, axis.Max*span
			continue
		}
		axis.Min, axis.Max = 0, axis.Max*1.08
		if axis.Max == 0 {
			axis.Max = 1
		}
	}
}

// drawable drops the points that a logarithmic axis cannot show.
func (p panel) drawable(points []point) (kept []point) {
	for _, q := range points {
		if (!p.logX || q.xMin > 0) && (!p.logY || q.yMin > 0) {
			kept = append(kept, q)
		}
	}
	return kept
}

// add draws the line, the range of each point's repeats, its mark, and a cross where requests failed.
func (l line) add(a *gonum.Plot) error {
	if len(l.points) == 0 {
		return nil
	}
	line, err := plotter.NewLine(xys(l.points))
	if err != nil {
		return err
	}
	style, glyph := look(l.index)
	line.LineStyle = style
	if l.front {
		line.LineStyle = frontLook()
	}
	a.Add(line)
	if l.front || l.bare {
		return nil
	}
	x, err := plotter.NewXErrorBars(xRanges{xys(l.points), l.points})
	if err != nil {
		return err
	}
	y, err := plotter.NewYErrorBars(yRanges{xys(l.points), l.points})
	if err != nil {
		return err
	}
	x.LineStyle = draw.LineStyle{Color: style.Color, Width: px(1)}
	y.LineStyle, x.CapWidth, y.CapWidth = x.LineStyle, px(5), px(5)
	marks, err := plotter.NewScatter(xys(l.points))
	if err != nil {
		return err
	}
	marks.GlyphStyle = glyph
	a.Add(x, y, marks)
	return addFailed(a, l.points)
}

func addFailed(a *gonum.Plot, points []point) error {
	var failed []point
	for _, p := range points {
		if p.failed {
			failed = append(failed, p)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	crosses, err := plotter.NewScatter(xys(failed))
	if err != nil {
		return err
	}
	crosses.GlyphStyle = failedLook()
	a.Add(crosses)
	return nil
}

func xys(points []point) plotter.XYs {
	var all plotter.XYs
	for _, p := range points {
		all = append(all, plotter.XY{X: p.x, Y: p.y})
	}
	return all
}

// xRanges and yRanges are the ranges of repeats as gonum wants them: how far down, how far up.
type xRanges struct {
	plotter.XYs
	points []point
}

func (r xRanges) XError(i int) (down, up float64) {
	p := r.points[i]
	return p.x - p.xMin, p.xMax - p.x
}

type yRanges struct {
	plotter.XYs
	points []point
}

func (r yRanges) YError(i int) (down, up float64) {
	p := r.points[i]
	return p.y - p.yMin, p.yMax - p.y
}
