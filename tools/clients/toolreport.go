package main

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The reports are read as far as they count requests. A member that is missing is an error, because
// a report of another shape must not read like one without failures.

var errShape = errors.New("no such members; another version has written it")

func readVLLM(report []byte) (counted, error) {
	var r struct{ Completed, Failed *int }
	if err := json.Unmarshal(report, &r); err != nil {
		return counted{}, err
	}
	if r.Completed == nil || r.Failed == nil {
		return counted{}, errShape
	}
	return counted{*r.Completed, *r.Failed}, nil
}

func readGuidellm(report []byte) (counted, error) {
	var r struct {
		Benchmarks []struct {
			Metrics struct {
				Requests struct{ Successful, Errored, Incomplete *int } `json:"request_totals"`
			}
		}
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return counted{}, err
	}
	var c counted
	for _, b := range r.Benchmarks {
		n := b.Metrics.Requests
		if n.Successful == nil || n.Errored == nil || n.Incomplete == nil {
			return counted{}, errShape
		}
		c.succeeded += *n.Successful
		c.failed += *n.Errored + *n.Incomplete
	}
	return c, nil
}

// readAiperf reads a report in which request_count counts the good requests. What went wrong is in
// error_summary, which is always there.
func readAiperf(report []byte) (counted, error) {
	var r struct {
		Requests  *struct{ Avg float64 } `json:"request_count"`
		Errors    *[]struct{ Count int } `json:"error_summary"`
		Failed    *struct{ Avg float64 } `json:"error_request_count"` // missing without an error
		Cancelled *bool                  `json:"was_cancelled"`
		Complete  *bool                  `json:"is_complete"`
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return counted{}, err
	}
	if r.Errors == nil || r.Cancelled == nil || r.Complete == nil {
		return counted{}, errShape
	}
	var c counted
	if r.Requests != nil {
		c.succeeded = int(r.Requests.Avg)
	}
	for _, e := range *r.Errors {
		c.failed += e.Count
	}
	if r.Failed != nil {
		c.failed = max(c.failed, int(r.Failed.Avg))
	}
	if *r.Cancelled || !*r.Complete {
		return c, fmt.Errorf("it is of a run that was broken off")
	}
	return c, nil
}

func readInferencePerf(report []byte) (counted, error) {
	var r struct{ Successes, Failures *struct{ Count *int } }
	if err := json.Unmarshal(report, &r); err != nil {
		return counted{}, err
	}
	if r.Successes == nil || r.Failures == nil || r.Successes.Count == nil || r.Failures.Count == nil {
		return counted{}, errShape
	}
	return counted{*r.Successes.Count, *r.Failures.Count}, nil
}
