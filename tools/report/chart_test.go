package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// barWidths draws c and returns the widths of its bars, in the order in which they stand.
func barWidths(t *testing.T, c Chart) (widths []float64, text string) {
	t.Helper()
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	corners := regexp.MustCompile(`^M([\d.]+),[\d.]+L([\d.]+),`)
	mark := float64(px(16))
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return widths, text
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.CharData:
			text += string(e) + "\n"
		case xml.StartElement:
			var path, style string
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "d":
					path = a.Value
				case "style":
					style = a.Value
				}
			}
			m := corners.FindStringSubmatch(path)
			if m == nil || !strings.HasPrefix(style, "fill:#") || style == "fill:#FFFFFF" {
				continue
			}
			left, _ := strconv.ParseFloat(m[1], 64)
			right, _ := strconv.ParseFloat(m[2], 64)
			if math.Abs(right-left-mark) > 0.01 { // no mark of the legend
				widths = append(widths, right-left)
			}
		}
	}
}

func TestChartIsWellFormedAndToScale(t *testing.T) {
	c := Chart{Title: "a < b", Note: "of & to", Groups: []Group{{Label: "x & y", Limit: 50, Bars: []Bar{
		{Series: "one", Value: 1000, Min: 800, Max: 1000, Text: "1,000 after"}, {Series: "two", Value: 250, Min: 250, Max: 250, Text: "250 after"},
	}}}}
	w, text := barWidths(t, c)
	if len(w) != 2 || math.Abs(w[0]/w[1]-4) > 0.01 {
		t.Errorf("bars of 1000 and 250 are %v wide, want 4 to 1", w)
	}
	for _, want := range []string{"a < b", "of & to", "x & y", "one", "two", "least–most", "goal of xpyd", "1,000 after", "250 after"} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the chart says nothing of %q:\n%s", want, text)
		}
	}
	c.Log = true
	c.Groups[0].Bars[1] = Bar{Series: "two", Value: 10, Min: 10, Max: 10}
	c.Groups[0].Bars = append(c.Groups[0].Bars, Bar{Series: "three", Value: 100, Min: 100, Max: 100}, Bar{Series: "none"})
	w, text = barWidths(t, c)
	if !strings.Contains(text, "log scale\n") {
		t.Errorf("the chart does not say that its scale is logarithmic:\n%s", text)
	}
	if len(w) != 4 || math.Abs(w[0]/w[2]-2) > 0.01 || w[1] != 0 || w[3] != 0 {
		t.Errorf("from 10 on, bars of 1000, 10, 100 and 0 are %v wide, want 2 to 0 to 1 to 0", w)
	}
}

// A chart without bars is drawn too.
func TestChartWithoutBars(t *testing.T) {
	for _, scale := range []bool{false, true} {
		if w, _ := barWidths(t, Chart{Title: "none", Log: scale}); len(w) != 0 {
			t.Errorf("bars of %v", w)
		}
	}
}
