// Command nfpm writes configurations of nfpm out of the one of GoReleaser, which builds its deb and rpm
// with nfpm too. So a deb and an rpm can be had in seconds, without GoReleaser, and .goreleaser.yaml
// stays the only list of what they contain.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// build is what GoReleaser finds out by itself.
type build struct {
	version string // without v
	arch    string // as Go names it
	date    string // of the commit, RFC 3339
	binary  string
}

func main() {
	var b build
	flag.StringVar(&b.version, "version", "", "the packages' `version`, without v")
	flag.StringVar(&b.arch, "arch", "", "their architecture, as Go names it")
	flag.StringVar(&b.date, "date", "", "the commit's `date`, for the files in them")
	flag.StringVar(&b.binary, "binary", "", "the program's `file`")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: nfpm FLAGS GORELEASER_FILE DIRECTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 || b.version == "" || b.arch == "" || b.date == "" || b.binary == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := b.write(flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "nfpm: "+err.Error())
		os.Exit(1)
	}
}

// write makes a file FORMAT.yaml in dir for each format of the package.
func (b build) write(file, dir string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the package's contents: %w", err)
	}
	formats, config, err := b.convert(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, format := range formats {
		if err := os.WriteFile(filepath.Join(dir, format+".yaml"), config, 0o644); err != nil {
			return fmt.Errorf("write the configuration of the %s: %w", format, err)
		}
	}
	return nil
}

// convert takes out the keys that only GoReleaser has, and adds what it would. nfpm refuses a key that
// it does not know, so one more of GoReleaser's own is noticed there.
func (b build) convert(text []byte) (formats []string, config []byte, err error) {
	var project struct {
		Name     string           `yaml:"project_name"`
		Packages []map[string]any `yaml:"nfpms"`
	}
	if err := yaml.Unmarshal(text, &project); err != nil {
		return nil, nil, err
	}
	if len(project.Packages) != 1 {
		return nil, nil, fmt.Errorf("%d packages in nfpms, want 1", len(project.Packages))
	}
	pkg := project.Packages[0]
	listed, _ := pkg["formats"].([]any)
	for _, format := range listed {
		formats = append(formats, fmt.Sprint(format))
	}
	contents, _ := pkg["contents"].([]any)
	if len(formats) == 0 || len(contents) == 0 {
		return nil, nil, errors.New("nfpms has no formats or no contents")
	}
	delete(pkg, "formats")
	delete(pkg, "file_name_template") // the conventional name, which nfpm takes by itself
	maps.Copy(pkg, map[string]any{
		"name": project.Name, "version": b.version, "platform": "linux", "arch": b.arch,
		"contents": append(contents, map[string]any{
			"src": b.binary, "dst": "/usr/bin/" + project.Name, "file_info": map[string]any{"mode": 0o755},
		}),
	})
	config, err = yaml.Marshal(pkg)
	if err != nil {
		return nil, nil, err
	}
	config = bytes.ReplaceAll(config, []byte("{{ .CommitDate }}"), []byte(b.date))
	if at := bytes.Index(config, []byte("{{")); at >= 0 {
		line, _, _ := strings.Cut(string(config[at:]), "\n")
		return nil, nil, fmt.Errorf("unknown template %s", line)
	}
	return formats, config, nil
}
