package sweep

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// presetFiles are published experiments, one in each file.
//
//go:embed presets/*.yaml
var presetFiles embed.FS

// Presets lists the names of presets.
func Presets() (names []string) {
	files, err := presetFiles.ReadDir("presets")
	if err != nil {
		panic("BUG: no presets: " + err.Error())
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// PresetText is the file of a preset.
func PresetText(name string) (string, error) {
	b, err := presetFiles.ReadFile("presets/" + name + ".yaml")
	if err != nil || !slices.Contains(Presets(), name) {
		return "", fmt.Errorf("preset %q: want one of %s", name, strings.Join(Presets(), ", "))
	}
	return string(b), nil
}

// Preset reads a preset.
func Preset(name string) (*File, error) {
	text, err := PresetText(name)
	if err != nil {
		return nil, err
	}
	return Parse("preset "+name, []byte(text))
}

// LeaveTemplates drops the targets of a preset that have no URL.
func (f *File) LeaveTemplates() {
	f.Targets = slices.DeleteFunc(f.Targets, func(t Target) bool { return t.URL == "" })
}
