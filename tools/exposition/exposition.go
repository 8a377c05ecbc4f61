// Package exposition reads the metrics of proxies and engines that run.
package exposition

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"xpyd/exposition"
	"xpyd/tools/process"
)

// Page is the result of one scrape.
type Page = exposition.Page

// Read reads a page.
func Read(in io.Reader) (Page, error) { return exposition.Read(in) }

// Of reads the page of a port, given with its scheme, and then closes its connection.
func Of(ctx context.Context, url string) (Page, error) {
	text, err := process.Get(ctx, url+"/metrics")
	if err != nil {
		return Page{}, err
	}
	p, err := Read(bytes.NewReader(text))
	if err != nil {
		return p, fmt.Errorf("%s: %w", url, err)
	}
	return p, nil
}
