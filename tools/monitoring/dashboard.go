package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Dashboard is what differs between the dashboards.
type Dashboard struct {
	File, UID, Title, About string
	// Variables are what a viewer chooses, besides the data source.
	Variables []Variable
	Rows      []Row
}

// Variable is a choice among the values of a label.
type Variable struct{ Name, Title, Query string }

// Row is a heading with the panels below it.
type Row struct {
	Title  string
	Panels []Panel
}

// kind is a panel type of Grafana.
type kind string

const (
	graph kind = "timeseries"
	stat  kind = "stat"
	table kind = "table"
)

// Panel is one figure. In its expressions $x stands for the matchers of xpyd's series, $e for those of
// engines, and $w for the window of rates.
type Panel struct {
	Kind  kind
	Title string
	About string
	Unit  string // of Grafana: s, percentunit, short …
	Wide  int    // of 24 columns; 0: 8 for a graph, 4 for a stat
	Stack bool
	// Good and Bad are values at which a stat changes its colour. They are used if they differ.
	Good, Bad float64
	Queries   []Query
}

// Query is one expression, and how its series are named.
type Query struct{ Expr, Legend string }

// one is a panel's only query.
func one(expr, legend string) []Query { return []Query{{expr, legend}} }

// quantiles are three percentiles of a histogram of xpyd.
func quantiles(name string) []Query {
	var all []Query
	for _, q := range []struct{ at, name string }{{"0.5", "p50"}, {"0.9", "p90"}, {"0.99", "p99"}} {
		all = append(all, Query{fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s[$w])))", q.at, name), q.name})
	}
	return all
}

// expand puts the matchers into an expression.
func expand(expr string) string {
	return strings.NewReplacer(
		"$x", `job=~"$job",instance=~"$instance"`, "$e", `job=~"$engine_job",model_name=~"$model"`, "$w", "$__rate_interval",
	).Replace(expr)
}

// Expressions are the expressions of all panels, as Grafana has them.
func (d Dashboard) Expressions() []string {
	var all []string
	for _, r := range d.Rows {
		for _, p := range r.Panels {
			for _, q := range p.Queries {
				all = append(all, expand(q.Expr))
			}
		}
	}
	return all
}

// object is a JSON object.
type object = map[string]any

// JSON returns the dashboard as Grafana imports it.
func (d Dashboard) JSON() ([]byte, error) {
	panels, id, y := []object{}, 0, 0
	for _, r := range d.Rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.Title, "collapsed": false, "panels": []object{}, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		x, height := 0, 0
		for _, p := range r.Panels {
			w, h := p.size()
			if x+w > 24 {
				x, y, height = 0, y+height, 0
			}
			id++
			panel := p.json(id)
			panel["gridPos"] = object{"x": x, "y": y, "w": w, "h": h}
			panels = append(panels, panel)
			x, height = x+w, max(height, h)
		}
		y += height
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(object{
		"uid": d.UID, "title": d.Title, "description": d.About, "tags": []string{"xpyd", "vllm"},
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "30s",
		"time": object{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"annotations": object{"list": []object{}}, "templating": object{"list": d.variables()},
		"links":  []object{{"type": "dashboards", "tags": []string{"xpyd"}, "title": "xpyd", "asDropdown": true, "keepTime": true}},
		"panels": panels,
	})
	return out.Bytes(), err
}

// source is the data source that the viewer chose.
func source() object { return object{"type": "prometheus", "uid": "$ds"} }

func (d Dashboard) variables() []object {
	list := []object{{"name": "ds", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}}
	for _, v := range d.Variables {
		list = append(list, object{
			"name": v.Name, "label": v.Title, "type": "query", "datasource": source(),
			"query": object{"query": v.Query, "refId": v.Name}, "refresh": 2, "sort": 1,
			"includeAll": true, "multi": true, "allValue": ".*",
			"current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
		})
	}
	return list
}

func (p Panel) size() (w, h int) {
	w, h = p.Wide, 8
	if p.Kind == stat {
		h = 4
	}
	switch {
	case w > 0:
	case p.Kind == stat:
		w = 4
	default:
		w = 8
	}
	return w, h
}

func (p Panel) json(id int) object {
	var targets []object
	for i, q := range p.Queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source(), "editorMode": "code", "expr": expand(q.Expr), "legendFormat": q.Legend, "range": p.Kind == graph, "instant": p.Kind != graph}
		if p.Kind == table {
			t["format"] = "table"
		}
		targets = append(targets, t)
	}
	panel := object{
		"id": id, "type": p.Kind, "title": p.Title, "description": p.About, "datasource": source(), "targets": targets,
		"fieldConfig": object{"defaults": p.defaults(), "overrides": []object{}},
	}
	switch p.Kind {
	case graph:
		panel["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case stat:
		panel["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}, "values": false}, "colorMode": "value", "graphMode": "area"}
	case table:
		panel["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true, "__name__": true, "Value": true}}}}
	}
	return panel
}

func (p Panel) defaults() object {
	d := object{"unit": p.Unit}
	if p.Kind == graph {
		custom := object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": false}
		if p.Stack {
			custom["stacking"], custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 40
		}
		d["custom"], d["min"] = custom, 0
	}
	if p.Good != p.Bad {
		d["color"], d["thresholds"] = object{"mode": "thresholds"}, object{"mode": "absolute", "steps": p.steps()}
	}
	return d
}

// steps colours a stat from green over yellow to red, in the direction from Good to Bad.
func (p Panel) steps() []object {
	if p.Good < p.Bad {
		return []object{{"color": "green", "value": nil}, {"color": "yellow", "value": (p.Good + p.Bad) / 2}, {"color": "red", "value": p.Bad}}
	}
	return []object{{"color": "red", "value": nil}, {"color": "yellow", "value": (p.Good + p.Bad) / 2}, {"color": "green", "value": p.Good}}
}
