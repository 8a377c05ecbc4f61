package report

import (
	_ "embed"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

//go:embed page.css
var pageStyle string

// html is the page. It loads nothing and runs nothing, and its policy tells the browser so.
func (p *page) html() g.Node {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(g.Attr("http-equiv", "Content-Security-Policy"), h.Content("default-src 'none'; style-src 'unsafe-inline'")),
			h.TitleEl(g.Text(p.Title)),
			h.StyleEl(g.Raw(pageStyle)),
		),
		h.Body(
			h.H1(g.Text(p.Title)),
			g.If(len(p.Words) > 0, h.Pre(g.Text(strings.Join(p.Words, "\n")))),
			g.Map(p.Workloads, pageWorkload.html),
			h.H2(g.Text("Runs")),
			g.Map(p.Runs, func(r pageRun) g.Node { return r.html(len(p.Runs) == 1) }),
		),
	))
}

func (w pageWorkload) html() g.Node {
	head := func(i int) g.Node { return h.Th(g.If(i == targetColumn, h.Class("name")), g.Text(w.Head[i])) }
	var heads, rows g.Group
	for i := range w.Head {
		heads = append(heads, head(i))
	}
	for _, row := range w.Rows {
		var cells g.Group
		for i, c := range row {
			cells = append(cells, c.html(i))
		}
		rows = append(rows, h.Tr(cells))
	}
	return g.Group{
		h.H2(g.Text(w.Title)),
		h.Div(h.Class("wide"), h.Table(h.THead(h.Tr(heads)), h.TBody(rows))),
		h.P(h.Small(g.Text("Times in ms. Several runs of a row are repeats: their median, and below it their range."))),
		h.Div(h.Class("figures"), g.Map(w.Figures, func(svg string) g.Node { return h.Figure(g.Raw(svg)) })),
		g.Map(w.Notes, func(note string) g.Node { return h.P(h.Small(g.Text(note))) }),
	}
}

// targetColumn is the column of names. They are aligned left.
const targetColumn = 1

func (c pageCell) html(column int) g.Node {
	var classes []string
	if column == targetColumn {
		classes = append(classes, "name")
	}
	if c.Bad {
		classes = append(classes, "bad")
	}
	return h.Td(g.If(len(classes) > 0, h.Class(strings.Join(classes, " "))), g.Text(c.Text), g.If(c.Range != "", h.Small(g.Text(c.Range))))
}

func (r pageRun) html(open bool) g.Node {
	return h.Details(g.If(open, g.Attr("open")),
		h.Summary(g.Text(r.Title), g.If(r.Verdict != "", h.Span(h.Class("bad"), g.Text(" "+r.Verdict)))),
		h.Div(h.Class("wide"), h.Pre(h.Class("block"), g.Text(r.Block))),
		g.If(len(r.Failures) > 0, r.failures()),
		h.H3(g.Text("Notes")),
		h.Ul(g.Map(r.Notes, func(note string) g.Node { return h.Li(g.Text(note)) })),
		h.H3(g.Text("Configuration")),
		h.Div(h.Class("wide"), h.Table(h.Class("left"), h.TBody(g.Map(r.Config, func(row [2]string) g.Node {
			return h.Tr(h.Th(g.Text(row[0])), h.Td(g.Text(row[1])))
		})))),
	)
}

func (r pageRun) failures() g.Node {
	return g.Group{
		h.H3(g.Text("Failures")),
		h.Div(h.Class("wide"), h.Table(h.Class("left"),
			h.THead(h.Tr(h.Th(g.Text("Code")), h.Th(g.Text("Requests")), h.Th(g.Text("As in")))),
			h.TBody(g.Map(r.Failures, func(row [3]string) g.Node {
				return h.Tr(h.Td(h.Class("bad"), g.Text(row[0])), h.Td(g.Text(row[1])), h.Td(g.Text(row[2])))
			})),
		)),
	}
}
