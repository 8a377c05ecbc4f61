package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Results are the results of a benchmark. As JSON they can be read again by Load.
type Results interface {
	// Markdown is all tables; images is the path of the charts from where it will stand.
	Markdown(images string) string
	// Charts are by the names of their files.
	Charts() map[string]Chart
	// Page is where documentation shows them.
	Page() Page
}

// Page is the part of a document that results fill.
type Page struct {
	File string // in the directory of documentation
	Name string // in the marks, lines of their own, between which the part stands
}

// Load reads the results.json of an earlier run.
func Load(path string, to Results) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("read results of %s: %w", path, err)
	}
	return nil
}

// Keep writes results.json into dir, so that a run that is stopped is not lost.
func Keep(r Results, dir string) error {
	js, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "results.json"), append(js, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// Save writes results.json, results.md and the charts into dir, and reports that to out. It
// publishes them in docs unless that is "".
func Save(r Results, dir, docs string, out io.Writer) error {
	if err := Keep(r, dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "results.md"), []byte(r.Markdown("")), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := writeCharts(r, dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nresults and charts: %s\n", dir)
	if docs == "" {
		return nil
	}
	return Publish(r, docs)
}

// Publish puts the tables into the page of docs, a directory, and the charts into its img/.
func Publish(r Results, docs string) error {
	p, images := r.Page(), filepath.Join(docs, "img")
	err := p.splice(docs, r.Markdown("img/"))
	if err == nil {
		err = os.MkdirAll(images, 0o755)
	}
	if err != nil {
		return fmt.Errorf("put the tables into the documentation: %w", err)
	}
	return writeCharts(r, images)
}

func writeCharts(r Results, dir string) error {
	for name, c := range r.Charts() {
		svg, err := c.SVG()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), svg, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write a chart: %w", err)
		}
	}
	return nil
}

// splice puts text between the marks and does not change what stands around them.
func (p Page) splice(docs, text string) error {
	path := filepath.Join(docs, p.File)
	begin, end := "<!-- "+p.Name+": begin -->\n", "<!-- "+p.Name+": end -->\n"
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}
