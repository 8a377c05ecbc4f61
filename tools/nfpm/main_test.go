package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var commit = build{version: "1.2.3", arch: "arm64", date: "2026-01-02T03:04:05Z", binary: "dist/quick/xpyd"}

// All that the releases' packages contain is in the configuration, and the program, which GoReleaser adds.
func TestContents(t *testing.T) {
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	formats, config, err := commit.convert(text)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"deb", "rpm"}; !slices.Equal(formats, want) {
		t.Errorf("formats %q, want %q", formats, want)
	}
	type entry struct{ Src, Dst, Type string }
	var release struct {
		NFPMs []struct{ Contents []entry }
	}
	var quick struct {
		Name, Version, Arch, MTime string
		Contents                   []entry
	}
	for at, into := range map[string]any{string(text): &release, string(config): &quick} {
		if err := yaml.Unmarshal([]byte(at), into); err != nil {
			t.Fatal(err)
		}
	}
	want := append(release.NFPMs[0].Contents, entry{Src: "dist/quick/xpyd", Dst: "/usr/bin/xpyd"})
	if len(want) < 10 || !slices.Equal(quick.Contents, want) {
		t.Errorf("contents\n%q, want\n%q", quick.Contents, want)
	}
	if got := []string{quick.Name, quick.Version, quick.Arch, quick.MTime}; !slices.Equal(got, []string{"xpyd", "1.2.3", "arm64", commit.date}) {
		t.Errorf("name, version, architecture and time are %q", got)
	}
}

// What only GoReleaser could fill in is an error, and not a package with braces in it.
func TestRefused(t *testing.T) {
	const fine = "project_name: x\nnfpms:\n- {formats: [deb], contents: [{src: a, dst: /b}]"
	if _, _, err := commit.convert([]byte(fine + "}\n")); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		fine + ", vendor: '{{ .Env.V }}'}\n": "unknown template {{ .Env.V }}",
		fine + "}\n- {}\n":                   "2 packages",
		"nfpms: [{formats: [deb]}]\n":        "no contents",
	} {
		if _, _, err := commit.convert([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
