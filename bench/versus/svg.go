package versus

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// chart is groups of horizontal bars, one a contender.
type chart struct {
	title  string
	note   string
	log    bool // a logarithmic scale, from the power of ten below the least value
	groups []group
}

// group is what stands beside each other.
type group struct {
	label string
	limit float64 // a tick at the goal of xpyd; 0: none
	bars  []chartBar
}

type chartBar struct {
	series   string
	value    float64
	min, max float64
	text     string
	goal     bool // the group's limit is for it
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
	plotWidth  = chartWidth - labelWidth - textWidth
)

// colours of contenders, apart for the colour-blind and readable on white and on black;
// a further build of xpyd takes one of the spare ones.
var colours = []struct{ series, colour string }{
	{nameXpyd, "#3b82c4"}, {nameNginx, "#2a9d6f"}, {nameRelay, "#8a8f98"}, {nameHAProxy, "#c98a00"},
	{nameRouter, "#d1603d"}, {nameDirect, "#b56bb0"}, {"", "#5b5bd6"}, {"", "#00a3a3"},
}

func colourOf(series string, all []string) string {
	for _, c := range colours {
		if c.series == series {
			return c.colour
		}
	}
	return colours[len(colours)-1-slices.Index(all, series)%2].colour
}

// svg draws the chart. Text follows the reader's light or dark scheme.
func (c chart) svg() string {
	var b strings.Builder
	series := c.series()
	height := headHeight
	for _, g := range c.groups {
		height += len(g.bars)*(barHeight+barGap) + groupGap
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s" font-family="system-ui, sans-serif" font-size="12">`+"\n",
		chartWidth, height, chartWidth, height, html.EscapeString(c.title))
	b.WriteString("<style>.t{fill:#24292f}.l{stroke:#24292f}@media (prefers-color-scheme:dark){.t{fill:#e6edf3}.l{stroke:#e6edf3}}</style>\n")
	fmt.Fprintf(&b, `<text class="t" x="8" y="20" font-size="15" font-weight="600">%s</text>`+"\n", html.EscapeString(c.title))
	x := 8
	for _, s := range series {
		fmt.Fprintf(&b, `<rect x="%d" y="33" width="12" height="12" fill="%s"/><text class="t" x="%d" y="43">%s</text>`+"\n", x, colourOf(s, series), x+17, html.EscapeString(s))
		x += 40 + 7*len(s)
	}
	fmt.Fprintf(&b, `<line class="l" x1="%d" y1="39" x2="%d" y2="39"/><text class="t" x="%d" y="43">least–most</text>`+"\n", x+6, x+30, x+36)
	if slices.ContainsFunc(c.groups, func(g group) bool { return g.limit > 0 }) {
		fmt.Fprintf(&b, `<line class="l" x1="%d" y1="31" x2="%d" y2="48" stroke-width="2"/><text class="t" x="%d" y="43">goal of xpyd</text>`+"\n", x+120, x+120, x+128)
	}
	fmt.Fprintf(&b, `<text class="t" x="%d" y="20" text-anchor="end">%s</text>`+"\n", chartWidth-8, html.EscapeString(c.note))
	y := headHeight
	scale := c.scale()
	for _, g := range c.groups {
		y = g.draw(&b, y, scale, series)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw returns where the next group begins.
func (g group) draw(b *strings.Builder, y int, scale func(float64) float64, series []string) (next int) {
	next = y + len(g.bars)*(barHeight+barGap)
	fmt.Fprintf(b, `<text class="t" x="8" y="%d">%s</text>`+"\n", (y+next)/2+2, html.EscapeString(g.label))
	for _, bar := range g.bars {
		w := scale(bar.value)
		mid := float64(y) + barHeight/2.0
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y, w, barHeight, colourOf(bar.series, series))
		from, to := labelWidth+scale(bar.min), labelWidth+scale(bar.max)
		fmt.Fprintf(b, `<line class="l" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", from, mid, to, mid)
		end := max(to, labelWidth+w)
		if g.limit > 0 && bar.goal {
			x := labelWidth + scale(g.limit)
			fmt.Fprintf(b, `<line class="l" x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke-width="2"/>`+"\n", x, y-2, x, y+barHeight+2)
			end = max(end, x)
		}
		fmt.Fprintf(b, `<text class="t" x="%.1f" y="%d">%s</text>`+"\n", end+6, y+barHeight-2, html.EscapeString(bar.text))
		y += barHeight + barGap
	}
	return next + groupGap
}

// series are the contenders of all groups, in the order of colours.
func (c chart) series() []string {
	var all []string
	for _, g := range c.groups {
		for _, b := range g.bars {
			if !slices.Contains(all, b.series) {
				all = append(all, b.series)
			}
		}
	}
	return all
}

// scale maps a value to px.
func (c chart) scale() func(float64) float64 {
	least, most := math.Inf(1), 0.0
	for _, g := range c.groups {
		most = max(most, g.limit)
		for _, b := range g.bars {
			most = max(most, b.max)
			if b.min > 0 {
				least = min(least, b.min)
			}
		}
	}
	if most == 0 {
		return func(float64) float64 { return 0 }
	}
	if !c.log {
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
