package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestChartIsWellFormedAndToScale(t *testing.T) {
	c := Chart{Title: "a < b", Groups: []Group{{Label: "x & y", Limit: 50, Bars: []Bar{
		{Series: "one", Value: 100, Min: 80, Max: 100, Text: "100"}, {Series: "two", Value: 25, Min: 25, Max: 25, Text: "25"},
	}}}}
	var widths []string
	d := xml.NewDecoder(strings.NewReader(c.SVG()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, c.SVG())
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			for _, a := range e.Attr {
				if a.Name.Local == "width" && a.Value != "12" { // 12: the legend
					widths = append(widths, a.Value)
				}
			}
		}
	}
	if want := "470.0 117.5"; strings.Join(widths, " ") != want {
		t.Errorf("bars of %v px, want %s", widths, want)
	}
	c.Log = true
	if s := c.scale(); math.Abs(s(100)-plotWidth) > 0.01 || s(10) != 0 || s(0) != 0 {
		t.Errorf("logarithmic scale: 100 at %g, 10 at %g, 0 at %g", s(100), s(10), s(0))
	}
}
