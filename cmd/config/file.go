package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"xpyd/internal/nearest"
)

// readConfigFile returns the file's values by key path, and the file. A section without a value
// ("timeouts:") counts as absent.
func readConfigFile(open opener, keys []key, path string) (map[string]any, readFile, error) {
	if path == "" {
		return nil, readFile{}, nil
	}
	file := open(path)
	if file.err != nil {
		return nil, readFile{}, fmt.Errorf("%s: %w", path, file.err)
	}
	v, kind := viper.New(), "yaml"
	if ext := filepath.Ext(path); slices.Contains([]string{".toml", ".json"}, ext) {
		kind = ext[1:]
	}
	v.SetConfigType(kind)
	if err := v.ReadConfig(bytes.NewReader(file.Text)); err != nil {
		return nil, readFile{}, fmt.Errorf("%s: %w", path, fileError(err))
	}
	if kind == "yaml" {
		if err := oneDocument(file.Text); err != nil {
			return nil, readFile{}, fmt.Errorf("%s: %w", path, fileError(err))
		}
	}
	values := map[string]any{}
	for _, p := range slices.Sorted(slices.Values(v.AllKeys())) {
		val := v.Get(p)
		known := slices.ContainsFunc(keys, func(k key) bool { return k.path == p })
		member := firstMember(keys, p)
		switch {
		case known && val != nil:
			values[p] = val
		case val == nil && (known || member != ""):
		case member != "":
			return nil, readFile{}, fmt.Errorf("%s: %s holds one value and must hold keys, such as %s", path, p, member)
		default:
			return nil, readFile{}, fmt.Errorf("%s: %s is no known key; %s", path, p, nearestKey(keys, p))
		}
	}
	return values, file, nil
}

// oneDocument refuses YAML with documents that viper, which reads the first, would leave out.
func oneDocument(text []byte) error {
	in := yaml.NewDecoder(bytes.NewReader(text))
	for first := true; ; first = false {
		var doc yaml.Node
		err := in.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !first && doc.Content[0].Tag != "!!null" { // nothing after the last --- does no harm
			return fmt.Errorf("line %d is in a second YAML document, and only one is read; remove the --- above it", doc.Content[0].Line)
		}
	}
}

// firstMember returns the first key of a section, or "" if there is no such section.
func firstMember(keys []key, section string) string {
	for _, k := range keys {
		if strings.HasPrefix(k.path, section+".") {
			return k.path
		}
	}
	return ""
}

// nearestKey hints at the key that path was probably meant for.
func nearestKey(keys []key, path string) string {
	var paths []string
	for _, k := range keys {
		paths = append(paths, k.path)
	}
	return hint("", nearest.Name(path, paths))
}

// fileError shortens a reader's error to one line without the file's path.
func fileError(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	text := strings.TrimPrefix(err.Error(), "While parsing config: ") // viper puts it there
	return errors.New(strings.Join(strings.Fields(text), " "))
}
