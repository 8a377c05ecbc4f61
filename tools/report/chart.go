package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Chart is groups of horizontal bars, with one bar for each series.
type Chart struct {
	Title  string
	Note   string
	Log    bool // a logarithmic scale, from the power of ten below the least value
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
	chartWidth = 900
	labelWidth = 290
	textWidth  = 140
	barHeight  = 13
	barGap     = 3
	groupGap   = 14
	headHeight = 62
	legendRow  = 20
	plotWidth  = chartWidth - labelWidth - textWidth
)

// colours can be told apart by the colour-blind, and are readable on white and on black. The last
// spareColours are for series that are not known.
var colours = []string{
	"#3b82c4", "#2a9d6f", "#8a8f98", "#c98a00", "#d1603d", "#b56bb0", "#7fb3e0", "#1f5f99",
	"#6fbf9b", "#a3a847", "#e0a08a", "#8c5a2b", "#c74f7a", "#6c7a89", "#5b5bd6", "#00a3a3",
}

const spareColours = 2

func (c Chart) colourOf(series string, all []string) string {
	if i := slices.Index(c.Known, series); i >= 0 {
		return colours[i%(len(colours)-spareColours)]
	}
	return colours[len(colours)-1-slices.Index(all, series)%spareColours]
}

// SVG draws the chart. Text follows the reader's light or dark scheme.
func (c Chart) SVG() string {
	var b, body strings.Builder
	series := c.series()
	y := c.legend(&body, series) + headHeight
	scale := c.scale()
	for _, g := range c.Groups {
		y = c.draw(&body, g, y, scale, series)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s" font-family="system-ui, sans-serif" font-size="12">`+"\n",
		chartWidth, y, chartWidth, y, html.EscapeString(c.Title))
	b.WriteString("<style>.t{fill:#24292f}.l{stroke:#24292f}@media (prefers-color-scheme:dark){.t{fill:#e6edf3}.l{stroke:#e6edf3}}</style>\n")
	fmt.Fprintf(&b, `<text class="t" x="8" y="20" font-size="15" font-weight="600">%s</text>`+"\n", html.EscapeString(c.Title))
	fmt.Fprintf(&b, `<text class="t" x="%d" y="20" text-anchor="end">%s</text>`+"\n", chartWidth-8, html.EscapeString(c.Note))
	b.WriteString(body.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// legend explains colours and marks. It returns how much higher it is than one row.
func (c Chart) legend(b *strings.Builder, series []string) (more int) {
	x := 8
	place := func(width int) {
		if x > 8 && x+width > chartWidth {
			x, more = 8, more+legendRow
		}
	}
	for _, s := range series {
		width := 40 + 7*len(s)
		place(width)
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text class="t" x="%d" y="%d">%s</text>`+"\n", x, more+33, c.colourOf(s, series), x+17, more+43, html.EscapeString(s))
		x += width
	}
	place(120)
	fmt.Fprintf(b, `<line class="l" x1="%d" y1="%d" x2="%d" y2="%d"/><text class="t" x="%d" y="%d">least–most</text>`+"\n", x+6, more+39, x+30, more+39, x+36, more+43)
	x += 120
	if slices.ContainsFunc(c.Groups, func(g Group) bool { return g.Limit > 0 }) {
		place(120)
		fmt.Fprintf(b, `<line class="l" x1="%d" y1="%d" x2="%d" y2="%d" stroke-width="2"/><text class="t" x="%d" y="%d">goal of xpyd</text>`+"\n", x, more+31, x, more+48, x+8, more+43)
	}
	return more
}

// draw draws a group and returns where the next one begins.
func (c Chart) draw(b *strings.Builder, g Group, y int, scale func(float64) float64, series []string) (next int) {
	next = y + len(g.Bars)*(barHeight+barGap)
	fmt.Fprintf(b, `<text class="t" x="8" y="%d">%s</text>`+"\n", (y+next)/2+2, html.EscapeString(g.Label))
	for _, bar := range g.Bars {
		w := scale(bar.Value)
		mid := float64(y) + barHeight/2.0
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y, w, barHeight, c.colourOf(bar.Series, series))
		from, to := labelWidth+scale(bar.Min), labelWidth+scale(bar.Max)
		fmt.Fprintf(b, `<line class="l" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", from, mid, to, mid)
		end := max(to, labelWidth+w)
		if g.Limit > 0 && bar.Goal {
			x := labelWidth + scale(g.Limit)
			fmt.Fprintf(b, `<line class="l" x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke-width="2"/>`+"\n", x, y-2, x, y+barHeight+2)
			end = max(end, x)
		}
		fmt.Fprintf(b, `<text class="t" x="%.1f" y="%d">%s</text>`+"\n", end+6, y+barHeight-2, html.EscapeString(bar.Text))
		y += barHeight + barGap
	}
	return next + groupGap
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

// scale maps a value to px.
func (c Chart) scale() func(float64) float64 {
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
	if most == 0 {
		return func(float64) float64 { return 0 }
	}
	if !c.Log {
		return func(v float64) float64 { return max(0, v) / most * plotWidth }
	}
	floor := math.Floor(math.Log10(least))
	span := math.Log10(most) - floor
	return func(v float64) float64 {
		if v <= 0 {
			return 0
		}
		return max(0, (math.Log10(v)-floor)/span*plotWidth)
	}
}
