package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"xpyd/router"
)

// key is one setting. Its three names come from its path in the configuration:
// timeouts.stream_idle, --timeouts-stream-idle, XPYD_TIMEOUTS_STREAM_IDLE.
type key struct {
	path  string
	index []int // of the field in config, for reflect's FieldByIndex
	def   any   // the default
}

// configKeys returns all keys, in the order of the structs.
func configKeys() []key { return appendKeys(nil, "", nil, reflect.ValueOf(Default())) }

func appendKeys(keys []key, prefix string, index []int, v reflect.Value) []key {
	for i := range v.NumField() {
		name, opts, _ := strings.Cut(v.Type().Field(i).Tag.Get("mapstructure"), ",")
		if name == "-" {
			continue // not set by operators
		}
		at := append(slices.Clone(index), i)
		switch {
		case opts == "squash":
			keys = appendKeys(keys, prefix, at, v.Field(i))
		case v.Field(i).Kind() == reflect.Struct:
			keys = appendKeys(keys, prefix+name+".", at, v.Field(i))
		default:
			keys = append(keys, key{path: prefix + name, index: at, def: v.Field(i).Interface()})
		}
	}
	return keys
}

// flag returns the flag's name. Client keys and engines are given one by one, so theirs is singular.
func (k key) flag() string {
	if k.path == "api_keys" || k.path == "engines" {
		return strings.ReplaceAll(strings.TrimSuffix(k.path, "s"), "_", "-")
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.path)
}

func (k key) env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "_"))
}

// names returns the ways to set the key, for error messages.
func (k key) names() string { return fmt.Sprintf("(flag --%s, %s)", k.flag(), k.env()) }

func (k key) isBool() bool { return k.unit() == "bool" }

// isKey reports whether the setting is a key or the file of one.
func (k key) isKey() bool {
	return strings.Contains(k.path, "api_key") || k.path == "keys_file" || strings.HasPrefix(k.path, "admin_token")
}

// secret reports whether the value must not be shown anywhere.
func (k key) secret() bool {
	return k.path == "api_keys" || k.path == "backend_api_key" || k.path == "admin_token"
}

// fileKey names the key of the file that may hold a secret instead.
func (k key) fileKey() string { return strings.TrimSuffix(k.path, "s") + "_file" }

// unit says what the value is, for help, tables and messages.
func (k key) unit() string {
	switch k.def.(type) {
	case time.Duration:
		return "duration"
	case int64:
		return "size"
	case int:
		return "count"
	case float64:
		return "share"
	case bool:
		return "bool"
	case []string, []router.Entry:
		return "list"
	default:
		return "string"
	}
}

// ChangedKeys returns the paths of the keys whose values differ in a and b.
func ChangedKeys(a, b Config) []string {
	var paths []string
	for _, k := range configKeys() {
		x, y := reflect.ValueOf(a).FieldByIndex(k.index), reflect.ValueOf(b).FieldByIndex(k.index)
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			paths = append(paths, k.path)
		}
	}
	return paths
}

// userinfo matches the name and the password in a URL.
var userinfo = regexp.MustCompile(`://[^/@\s]*@`)

// Settings returns the values of all keys by their paths, as an operator would write them, without secrets.
func Settings(c Config) map[string]string {
	all := map[string]string{}
	for _, k := range configKeys() {
		text := userinfo.ReplaceAllString(k.text(c), "://(hidden)@")
		if k.secret() && text != "" {
			text = "(hidden)"
		}
		all[k.path] = text
	}
	return all
}

// defaultText returns the default as an operator would write it.
func (k key) defaultText() string { return valueText(k.def) }

// text returns the key's value in c as an operator would write it.
func (k key) text(c Config) string {
	return valueText(reflect.ValueOf(c).FieldByIndex(k.index).Interface())
}

func valueText(v any) string {
	switch d := v.(type) {
	case time.Duration:
		return durationText(d)
	case int64:
		return SizeText(d)
	case []string:
		return strings.Join(d, ",")
	case []router.Entry:
		return strings.Join(router.Texts(d), ",")
	default:
		return fmt.Sprint(d)
	}
}

// durationText returns d without the "0s" tails of Duration.String, such as 5m for 5m0s.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// lookup finds the highest-ranking source that sets the key: flag, environment, file.
func (k key) lookup(fs *pflag.FlagSet, environ []string, file map[string]any) (any, bool) {
	if f := fs.Lookup(k.flag()); f != nil && f.Changed {
		return f.Value.(*flagValue).raw, true
	}
	if v, ok := findEnv(environ, k.env()); ok {
		return v, true
	}
	v, ok := file[k.path]
	if v == "" && k.isKey() {
		return nil, false // configs/default.yaml shows a key that is not set like this
	}
	return v, ok
}

// set parses raw into the field of c. raw is a text of a flag or the environment, or a value of the
// file.
func (k key) set(c *Config, raw any) error {
	if s, ok := raw.(string); ok && strings.TrimSpace(s) == "" && k.isKey() {
		// An empty variable in a unit or compose file must not switch keys off.
		return fmt.Errorf("%s is set but empty; give a key or leave it unset %s", k.path, k.names())
	}
	v, err := k.parse(raw)
	if err != nil && (k.secret() || k.unit() == "list") { // a list may hold URLs with passwords
		return fmt.Errorf("%s: %w %s", k.path, err, k.names())
	}
	if err != nil {
		return fmt.Errorf("%s: %q %w %s", k.path, fmt.Sprint(raw), err, k.names())
	}
	reflect.ValueOf(c).Elem().FieldByIndex(k.index).Set(reflect.ValueOf(v))
	return nil
}

// parse returns raw as the key's Go type. The text of its errors comes after the value in a
// message.
func (k key) parse(raw any) (any, error) {
	switch k.unit() {
	case "list":
		if _, ok := k.def.([]router.Entry); ok {
			return parsePool(raw)
		}
		return parseList(raw)
	case "string":
		return k.parseText(raw)
	}
	s, ok := scalarText(raw)
	if !ok {
		return nil, fmt.Errorf("must be one value, a %s", k.unit())
	}
	switch k.unit() {
	case "duration":
		return parseDuration(s)
	case "size":
		return parseSize(s)
	case "count":
		n, err := strconv.Atoi(s)
		return n, orMessage(err, "must be a whole number")
	case "share":
		f, err := strconv.ParseFloat(s, 64)
		return f, orMessage(err, "must be a number such as 0.25")
	default:
		b, err := strconv.ParseBool(s)
		return b, orMessage(err, "must be true or false")
	}
}

// parseText takes a text. A number in its place may have lost digits on the way here, such as the zero of 0123. Where
// no number is right, the checks of the values say what is.
func (k key) parseText(raw any) (any, error) {
	if text, ok := raw.(string); ok {
		return text, nil
	}
	if _, ok := raw.([]any); ok {
		return nil, errors.New("must be one value, not a list")
	}
	if text, ok := scalarText(raw); ok && (k.path == "listen" || k.path == "admin" || k.values() != nil) {
		return text, nil
	}
	return nil, errors.New("must be a text; put it in quotes")
}

func orMessage(err error, message string) error {
	if err == nil {
		return nil
	}
	return errors.New(message)
}

// scalarText writes a scalar of any file format as a flag would hold it.
func scalarText(raw any) (string, bool) {
	switch v := raw.(type) {
	case string:
		return strings.TrimSpace(v), true
	case float64: // JSON has no other numbers
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case bool, int, int64, uint64:
		return fmt.Sprint(v), true
	default:
		return "", false
	}
}

// parseList takes a list of the file or a text with commas. No entry may be empty.
func parseList(raw any) ([]string, error) {
	var list []string
	switch v := raw.(type) {
	case string:
		if strings.TrimSpace(v) == "" {
			return nil, nil
		}
		list = strings.Split(v, ",")
	case []any:
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, errors.New("must be a list of texts; put each in quotes")
			}
			list = append(list, s)
		}
	default:
		return nil, errors.New("must be a list")
	}
	for i := range list {
		if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
			return nil, errors.New("has an empty entry; remove it")
		}
	}
	return list, nil
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	n, numErr := strconv.ParseFloat(s, 64)
	if numErr == nil && n < 0 {
		// A unit would not help here. checkAmounts says what would.
		return min(time.Duration(max(n, -1e9)*float64(time.Second)), -1), nil
	}
	if numErr == nil {
		return 0, fmt.Errorf("lacks a unit; try %ss or %sms", s, s)
	}
	return 0, errors.New("is no duration; try 1s, 250ms or 5m")
}

// sizeUnits has the largest unit first. K, M and G alone are refused, because some readers take
// them for powers of 1000.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads a number of bytes, plain or with KiB, MiB or GiB.
func parseSize(s string) (int64, error) {
	unit := int64(1)
	digits := s
	for _, u := range sizeUnits {
		if d, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = strings.TrimSpace(d), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return 0, errors.New("is no size; try 33554432, 32MiB or 1GiB")
	}
	return n * unit, nil
}

// SizeText returns the shortest exact form that parseSize reads.
func SizeText(n int64) string {
	for _, u := range sizeUnits {
		if n != 0 && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
