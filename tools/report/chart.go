package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is groups of horizontal bars, with one bar for each series.
type Chart struct {
	Title  string
	Note   string // what the texts of the bars say
	Log    bool   // a logarithmic scale, from the power of ten below the least value
	Groups []Group
	// Known are the series whose colours are the same in every chart, by their place. Any
	// other takes one of the spare colours.
	Known []string
}

// Group is a set of bars that stand together.
type Group struct {
	Label string
	Limit float64 // a tick at the goal of xpyd; 0 if none
	Bars  []Bar
}

// Bar is a value between the least and the most that was seen of it.
type Bar struct {
	Series   string
	Value    float64
	Min, Max float64
	Text     string // after the bar
	Goal     bool   // the group's limit is for it
}

// Sizes in px.
const (
	chartWidth  = 900
	barHeight   = 16 // with the gap to the next
	titleHeight = 30
	axisHeight  = 34
	legendRow   = 20
	chartMargin = 8
	labelGap    = 36 // before the bars, for a reader's letters that are wider than Arial's
)

// px is a length in pixels, of which an inch has 96.
func px(n float64) vg.Length { return vg.Length(n) * vg.Inch / 96 }

// spareColours is the number of colours at the end of the palette that no known series has.
const spareColours = 2

// palette returns colours that the colour-blind can tell apart.
func palette() []color.RGBA {
	var all []color.RGBA
	for _, rgb := range []uint32{
		0x3b82c4, 0x2a9d6f, 0x8a8f98, 0xc98a00, 0xd1603d, 0xb56bb0, 0x7fb3e0, 0x1f5f99,
		0x6fbf9b, 0xa3a847, 0xe0a08a, 0x8c5a2b, 0xc74f7a, 0x6c7a89, 0x404040, 0x5b5bd6, 0x00a3a3,
	} {
		all = append(all, color.RGBA{R: uint8(rgb >> 16), G: uint8(rgb >> 8), B: uint8(rgb), A: 255})
	}
	return all
}

func (c Chart) colourOf(series string, all []string) color.RGBA {
	colours := palette()
	if i := slices.Index(c.Known, series); i >= 0 {
		return colours[i%(len(colours)-spareColours)]
	}
	return colours[len(colours)-1-slices.Index(all, series)%spareColours]
}

// letters are sans-serif, in px.
func letters(size float64, bold bool) draw.TextStyle {
	f := plot.DefaultFont
	f.Variant, f.Size = "Sans", px(size)
	if bold {
		f.Weight = font.WeightBold
	}
	return draw.TextStyle{Color: color.Black, Font: f, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
}

// SVG draws the chart on white. Its letters are those of the reader's machine.
func (c Chart) SVG() ([]byte, error) {
	width := px(chartWidth - 2*chartMargin)
	legend := c.legend(width)
	y, spans := c.places()
	below := px((1-y)*barHeight + axisHeight)
	height := px(titleHeight+2*chartMargin) + px(legendRow)*vg.Length(len(legend)) + below
	canvas := vgsvg.New(px(chartWidth), height)
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	page = draw.Crop(page, px(chartMargin), -px(chartMargin), px(chartMargin), -px(chartMargin))
	head := page.Max.Y - px(titleHeight)/2
	page.FillText(letters(15, true), vg.Point{X: page.Min.X, Y: head}, c.Title)
	note := letters(12, false)
	note.XAlign = draw.XRight
	said := c.Note
	if c.Log {
		said = strings.TrimPrefix(said+", log scale", ", ")
	}
	page.FillText(note, vg.Point{X: page.Max.X - px(labelGap), Y: head}, said)
	for i, row := range legend {
		row.draw(page, page.Max.Y-px(titleHeight)-px(legendRow)*(vg.Length(i)+0.5))
	}
	page.Max.Y = page.Min.Y + below
	c.axes(y, spans).Draw(page)
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("draw the chart %s: %w", c.Title, err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// series are the contenders of all groups, in the order of colours.
func (c Chart) series() []string {
	var all []string
	for _, g := range c.Groups {
		for _, b := range g.Bars {
			if !slices.Contains(all, b.Series) {
				all = append(all, b.Series)
			}
		}
	}
	return all
}

// places returns where the last group ends, and the middles of the groups, on an axis that counts
// bars from 0 downwards.
func (c Chart) places() (end float64, middles []float64) {
	for _, g := range c.Groups {
		n := float64(len(g.Bars))
		middles = append(middles, end-n/2)
		end -= n + 1 // a gap
	}
	return end, middles
}

// axes are the chart without its title and legend.
func (c Chart) axes(end float64, middles []float64) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Y.Min, p.Y.Max, p.Y.Width, p.Y.Tick.Length, p.Y.Padding = end, 1, 0, 0, px(labelGap)
	var names plot.ConstantTicks
	for i, g := range c.Groups {
		names = append(names, plot.Tick{Value: middles[i], Label: g.Label})
	}
	p.Y.Tick.Marker = names
	if p.X.Min, p.X.Max = c.span(); c.Log {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	p.X.Tick.Marker = short(p.X.Tick.Marker)
	for _, style := range []*draw.TextStyle{&p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font, style.Handler = letters(12, false).Font, plot.DefaultTextHandler
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Width, grid.Vertical.Color = 0, color.Gray{Y: 225}
	p.Add(grid, bars{c})
	return p
}

// textRoom is the part of the axis for the texts after the longest bars.
const textRoom = 0.25

// span returns the ends of the axis of values.
func (c Chart) span() (from, to float64) {
	least, most := math.Inf(1), 0.0
	for _, g := range c.Groups {
		most = max(most, g.Limit)
		for _, b := range g.Bars {
			most = max(most, b.Max)
			if b.Min > 0 {
				least = min(least, b.Min)
			}
		}
	}
	switch {
	case most == 0:
		return 1, 10
	case !c.Log:
		return 0, most / (1 - textRoom)
	}
	from = math.Pow(10, math.Floor(math.Log10(min(least, most))))
	return from, from * math.Pow(max(most/from, 10), 1/(1-textRoom))
}

// short writes the labels of ticks without zeros at their ends, and with commas.
func short(ticker plot.Ticker) plot.Ticker {
	return plot.TickerFunc(func(from, to float64) []plot.Tick {
		ticks := ticker.Ticks(from, to)
		for i, t := range ticks {
			switch {
			case t.IsMinor():
			case t.Value >= 1000:
				ticks[i].Label = Thousands(int64(math.Round(t.Value)))
			default:
				ticks[i].Label = fmt.Sprintf("%.4g", t.Value)
			}
		}
		return ticks
	})
}
