package sim_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// outline has what a client can rely on in a raw answer, one thing on each line: the status, the
// header, and every member of the body with its type, in order. Values that are the same in each
// run are part of it, and every value of an error.
//
//	HTTP/1.1 200 OK
//	content-length: *
//	choices[] object
//	choices[].finish_reason "length"
func outline(answer string) ([]string, error) {
	head, content, _ := strings.Cut(answer, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	for i, line := range lines {
		if name, _, _ := strings.Cut(line, ":"); name == "date" || name == "content-length" {
			lines[i] = name + ": *"
		}
	}
	if strings.Contains(head, "\r\ntransfer-encoding: chunked") {
		chunks, err := unchunked(content)
		if err != nil {
			return lines, err
		}
		return outlineEvents(lines, chunks)
	}
	switch {
	case strings.Contains(head, "text/plain"):
		return append(lines, outlineMetrics(content)...), nil
	case content == "":
		return append(lines, "no body"), nil
	}
	o := outliner{lines: lines, verbatim: !strings.HasPrefix(head, "HTTP/1.1 2")}
	err := o.value(content, "")
	return o.lines, err
}

// unchunked are the chunks of a chunked body, without the one that ends it.
func unchunked(body string) ([]string, error) {
	var all []string
	for {
		line, rest, found := strings.Cut(body, "\r\n")
		size, err := strconv.ParseInt(line, 16, 32)
		if err != nil || !found || len(rest) < int(size)+2 {
			return all, fmt.Errorf("no chunk: %.80q", body)
		}
		if size == 0 {
			if rest != "\r\n" {
				return all, fmt.Errorf("after the last chunk: %q", rest)
			}
			return all, nil
		}
		all, body = append(all, rest[:size]), rest[size+2:]
	}
}

// outlineEvents adds the kinds of events in their order. A run of one kind counts once, because
// neither the number of tokens nor the order of several choices belongs to the wire format.
func outlineEvents(lines, chunks []string) ([]string, error) {
	last := ""
	for _, chunk := range byChoice(chunks) {
		kind, err := outlineEvent(chunk)
		if err != nil {
			return lines, err
		}
		if text := strings.Join(kind, "\n"); text != last {
			lines, last = append(lines, kind...), text
		}
	}
	return lines, nil
}

var choiceIndex = regexp.MustCompile(`"choices":\[\{"index":(\d+)`)

// byChoice puts the events of one choice together if only events of choices are between them.
func byChoice(chunks []string) []string {
	sorted := slices.Clone(chunks)
	begin := 0
	for i := range len(sorted) + 1 {
		if i < len(sorted) && choiceIndex.MatchString(sorted[i]) {
			continue
		}
		slices.SortStableFunc(sorted[begin:i], func(a, b string) int {
			return strings.Compare(choiceIndex.FindString(a), choiceIndex.FindString(b))
		})
		begin = i + 1
	}
	return sorted
}

// outlineEvent is one chunk, which must be one whole event. What is not the JSON of a token or of a
// usage is kept as it came.
func outlineEvent(chunk string) ([]string, error) {
	fields, data, found := strings.Cut("\n"+chunk, "\ndata: ")
	if !found || !strings.HasSuffix(data, "\n\n") || strings.Count(data, "\n") != 2 {
		return nil, fmt.Errorf("chunk is no event: %q", chunk)
	}
	data = strings.TrimSuffix(data, "\n\n")
	kind := "event" + strings.ReplaceAll(fields, "\n", " ")
	if !strings.HasPrefix(data, "{") || strings.HasPrefix(data, `{"error"`) {
		return []string{kind + " " + data}, nil
	}
	o := outliner{lines: []string{kind}}
	err := o.value(data, "")
	return o.lines, err
}

// outliner lists the members of JSON texts, each line once in a list's elements.
type outliner struct {
	lines    []string
	verbatim bool
}

// told has the members whose string is the same in each run.
var told = []string{"object", "role", "type", "finish_reason", "owned_by", "transfer_mode", "service_tier", "organization", "version"}

// fraction matches a number that has another type in the languages of many clients.
var fraction = regexp.MustCompile(`[.eE]`)

// value adds one JSON value. path is its place.
func (o *outliner) value(text, path string) error {
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber()
	if err := o.next(in, path); err != nil {
		return fmt.Errorf("outline %.80q: %w", text, err)
	}
	if in.More() {
		return fmt.Errorf("more than one JSON value: %q", text)
	}
	return nil
}

func (o *outliner) next(in *json.Decoder, path string) error {
	token, err := in.Token()
	if err != nil {
		return err
	}
	member := path[strings.LastIndexByte(path, '.')+1:]
	switch v := token.(type) {
	case json.Delim:
		if v == '[' {
			return o.list(in, path)
		}
		return o.object(in, path)
	case string:
		o.add(path, o.text(member, v))
	case json.Number:
		o.add(path, o.number(v))
	default:
		o.add(path, fmt.Sprint(v)) // true, false, <nil>
	}
	return nil
}

func (o *outliner) add(path, kind string) {
	o.lines = append(o.lines, strings.TrimPrefix(path+" "+kind, " "))
}

// text returns what is not random in an id.
func (o *outliner) text(member, value string) string {
	end := -1
	switch {
	case o.verbatim || slices.Contains(told, member):
		return strconv.Quote(value)
	case member == "id" || member == "remote_request_id":
		end = strings.IndexAny(value, "-_")
	case member == "system_fingerprint":
		end = strings.LastIndexByte(value, '-')
	}
	if end < 0 {
		return "string"
	}
	return strconv.Quote(value[:end+1] + "*")
}

func (o *outliner) number(v json.Number) string {
	switch {
	case o.verbatim:
		return v.String()
	case fraction.MatchString(v.String()):
		return "fraction"
	}
	return "integer"
}

// list adds the union of the elements. A token may have no bytes.
func (o *outliner) list(in *json.Decoder, path string) error {
	o.add(path, "list")
	inner := outliner{verbatim: o.verbatim}
	for in.More() {
		if err := inner.next(in, path+"[]"); err != nil {
			return err
		}
	}
	if !strings.HasSuffix(path, "bytes") {
		o.union(inner.lines)
	}
	_, err := in.Token()
	return err
}

// object adds the members in their order. Where the names are tokens, it writes "*".
func (o *outliner) object(in *json.Decoder, path string) error {
	o.add(path, "object")
	inner := outliner{verbatim: o.verbatim}
	tokens := strings.HasSuffix(path, "prompt_logprobs[]") || strings.HasSuffix(path, "logprobs.top_logprobs[]")
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return err
		}
		name := token.(string)
		if tokens {
			name = "*"
		}
		if err := inner.next(in, strings.TrimPrefix(path+"."+name, ".")); err != nil {
			return err
		}
	}
	o.union(inner.lines)
	_, err := in.Token()
	return err
}

func (o *outliner) union(lines []string) {
	for _, line := range lines {
		if !slices.Contains(o.lines, line) {
			o.lines = append(o.lines, line)
		}
	}
}

// outlineMetrics returns the samples without their values and the TYPE lines, sorted. The labels of
// an info metric are settings, so only their names count.
func outlineMetrics(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		switch {
		case strings.HasPrefix(line, "# TYPE "):
			lines = append(lines, line)
		case at < 0 || strings.HasPrefix(line, "#"):
		case strings.Contains(line, "_info{"):
			lines = append(lines, regexp.MustCompile(`"[^"]*"`).ReplaceAllString(line[:at], "*"))
		default:
			lines = append(lines, line[:at])
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
