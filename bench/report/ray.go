package report

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"xpyd/bench/advice"
	"xpyd/bench/plot"
	"xpyd/bench/result"
)

// ray is the Pareto front of each workload and the best target by load, in words.
func ray(w *strings.Builder, runs []*result.Run, o Options) error {
	lat := o.Ray.Latency()
	for _, front := range advice.Pareto(runs, lat) {
		fmt.Fprintf(w, "Pareto front of %s, by %s and throughput:\n", front.Title(), front.Latency)
		if err := frontTable(w, front); err != nil {
			return err
		}
		w.WriteString("\n")
	}
	for _, line := range advice.Words(runs, lat) {
		w.WriteString(line + "\n")
	}
	return nil
}

func frontTable(w *strings.Builder, front advice.Front) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "target\tload\t%s (ms)\t%s\treq/s\trepeats\t\n", front.Latency, front.Unit)
	for _, p := range front.Line {
		throughput := p.Output.Median
		if strings.HasSuffix(front.Unit, "a GPU") {
			throughput /= p.GPUs
		}
		fmt.Fprintf(out, "%s\t%s\t%.2f\t%.2f\t%.2f\t%d\t\n", p.Target, p.Load, p.Latency.Median, throughput, p.Requests.Median, len(p.Runs))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// rayFiles are the words, and the figure of three panels of each workload.
func rayFiles(runs []*result.Run, o Options) ([]File, error) {
	var words strings.Builder
	if err := ray(&words, runs, o); err != nil {
		return nil, err
	}
	files := []File{{"ray.txt", []byte(words.String())}}
	groups := advice.Groups(runs, o.Ray.Latency())
	for _, g := range groups {
		prefix := ""
		if len(groups) > 1 {
			prefix = groupFile(g) + "-"
		}
		pictures, err := pictureFiles(prefix, []plot.Figure{plot.Ray(g, o.Ray)})
		if err != nil {
			return nil, err
		}
		files = append(files, pictures...)
	}
	return files, nil
}
