package report

import (
	"strings"

	"xpyd/bench/advice"
	"xpyd/bench/plot"
	"xpyd/bench/result"
)

// set are the runs of one workload on one target.
type set struct {
	sweep, workload, target string
	runs                    []*result.Run
}

// sets sorts runs by workload and target, in the order of the first run of each.
func sets(runs []*result.Run) (all []set) {
	index := map[[3]string]int{}
	for _, r := range runs {
		p := advice.Place(r)
		key := [3]string{p.Sweep, p.Workload, p.Target}
		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, set{sweep: p.Sweep, workload: p.Workload, target: p.Target})
		}
		all[i].runs = append(all[i].runs, r)
	}
	return all
}

// fileName joins words into one name: letters, digits, dots and dashes.
func fileName(words ...string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '-'
	}, strings.Join(words, "-"))
	if name = strings.Trim(name, "-."); name == "" {
		return "unnamed"
	}
	return name
}

// groupFile is the name for the files of a group.
func groupFile(g advice.Group) string {
	loop := "concurrency"
	if g.Open {
		loop = "rate"
	}
	return fileName(g.Sweep, g.Workload, loop)
}

// pictureFiles makes a PNG and an SVG of each figure.
func pictureFiles(prefix string, figures []plot.Figure) ([]File, error) {
	var files []File
	for _, f := range figures {
		png, err := f.PNG()
		if err != nil {
			return nil, err
		}
		svg, err := f.SVG()
		if err != nil {
			return nil, err
		}
		files = append(files, File{prefix + f.Name + ".png", png}, File{prefix + f.Name + ".svg", svg})
	}
	return files, nil
}
