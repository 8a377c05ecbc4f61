// Package plot draws the figures of benchmark reports, as PNG and as SVG.
package plot

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"

	scale "golang.org/x/image/draw"
	"golang.org/x/image/font"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a row of panels over one legend.
type Figure struct {
	Name   string // of its file, without the suffix
	Title  string
	Note   string // below the legend: what the points are
	Width  int    // pixels
	Height int    // pixels, of the panels alone
	panels []panel
}

// panel is one pair of axes.
type panel struct {
	title, x, y string
	logX, logY  bool
	ticks       []float64 // of the x axis; nil: chosen by the axis
	lines       []line
}

// line is one target's points, in the order in which they are joined.
type line struct {
	name   string
	index  int  // of the target: its colour and mark are the same in all figures of a group
	front  bool // the Pareto front
	bare   bool // a line that is not in the legend
	points []point
}

// point is the median of its repeats, with their range.
type point struct {
	x, xMin, xMax float64
	y, yMin, yMax float64
	label         string
	failed        bool // some requests failed
}

// Heights of the parts around the panels, in pixels.
const (
	titleHeight = 28
	rowHeight   = 16
	noteHeight  = 16
	margin      = 8
)

// px is a length in pixels, 96 to the inch.
func px(n float64) vg.Length { return vg.Length(n) * vg.Inch / 96 }

// fine is how many times larger than its final size a PNG is drawn. Letters are placed on whole
// pixels, and small ones would run into each other.
const fine = 3

// PNG draws the figure on white.
func (f Figure) PNG() ([]byte, error) {
	w, h := f.size()
	canvas := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(96*fine), vgimg.UseBackgroundColor(color.White))
	if err := f.draw(draw.New(canvas)); err != nil {
		return nil, err
	}
	large := canvas.Image()
	small := image.NewRGBA(image.Rect(0, 0, large.Bounds().Dx()/fine, large.Bounds().Dy()/fine))
	scale.CatmullRom.Scale(small, small.Bounds(), large, large.Bounds(), scale.Src, nil)
	var b bytes.Buffer
	if err := png.Encode(&b, small); err != nil {
		return nil, fmt.Errorf("draw %s: %w", f.Name, err)
	}
	return b.Bytes(), nil
}

// SVG draws the figure without a background. Its fonts are those of the reader's machine.
func (f Figure) SVG() ([]byte, error) {
	w, h := f.size()
	canvas := vgsvg.New(w, h)
	if err := f.draw(draw.New(canvas)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("draw %s: %w", f.Name, err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// Split makes a figure of each panel, without the note, for a page that may be narrow.
func (f Figure) Split() (figures []Figure) {
	for i, p := range f.panels {
		one := f
		one.Name, one.Title, one.panels = fmt.Sprintf("%s-%d", f.Name, i+1), "", []panel{p}
		one.Width, one.Height, one.Note = 460, 320, ""
		figures = append(figures, one)
	}
	return figures
}

func (f Figure) size() (w, h vg.Length) {
	rows := len(f.legend(px(float64(f.Width - 2*margin))))
	high := f.Height + rows*rowHeight + 2*margin
	if f.Title != "" {
		high += titleHeight
	}
	if f.Note != "" {
		high += noteHeight
	}
	return px(float64(f.Width)), px(float64(high))
}

func (f Figure) draw(c draw.Canvas) error {
	c = draw.Crop(c, px(margin), -px(margin), px(margin), -px(margin))
	if f.Title != "" {
		c.FillText(centred(letters(14, true), draw.YTop), vg.Point{X: c.Center().X, Y: c.Max.Y}, f.Title)
		c.Max.Y -= px(titleHeight)
	}
	if f.Note != "" {
		c.FillText(letters(9, false), vg.Point{X: c.Min.X, Y: c.Min.Y + px(3)}, f.Note)
		c.Min.Y += px(noteHeight)
	}
	rows := f.legend(c.Max.X - c.Min.X)
	for i, row := range rows {
		row.draw(c, c.Min.Y+px(rowHeight)*(vg.Length(len(rows)-1-i)+0.5))
	}
	c.Min.Y += px(rowHeight) * vg.Length(len(rows))
	tiles := draw.Tiles{Cols: len(f.panels), Rows: 1, PadX: px(14)}
	for i, p := range f.panels {
		axes, err := p.axes()
		if err != nil {
			return fmt.Errorf("draw %s: %w", f.Name, err)
		}
		axes.Draw(tiles.At(c, i, 0))
	}
	return nil
}

// letters are sans-serif, in points.
func letters(size float64, bold bool) draw.TextStyle {
	style := draw.TextStyle{Color: color.Black, Handler: gonum.DefaultTextHandler, YAlign: draw.YBottom}
	style.Font.Typeface, style.Font.Variant, style.Font.Size = "Liberation", "Sans", vg.Length(size)*0.75
	if bold {
		style.Font.Weight = font.WeightBold
	}
	return style
}
