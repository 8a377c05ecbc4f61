package sick

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"xpyd/tools/completion"
	"xpyd/tools/process"
)

// load sends streamed completions at a rate, however long they take.
type load struct {
	addr string
	rate float64

	wg  sync.WaitGroup
	mu  sync.Mutex
	all []visit
}

// visit is one request of a client.
type visit struct {
	at    time.Time
	first time.Duration // until its first token, or its end
	err   error
}

// mostWait is how long a client waits for an answer.
const mostWait = 2 * time.Minute

// start begins, and returns what waits for the last client, once ctx has ended. A client that still waits then is taken as it is.
func (l *load) start(ctx context.Context) (end func()) {
	asked, leave := context.WithCancel(context.Background())
	l.wg.Go(func() {
		tick := time.NewTicker(time.Duration(float64(time.Second) / l.rate))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			l.wg.Go(func() { l.visit(asked, fmt.Sprintf("sick-%d", n), "") })
		}
	})
	return sync.OnceFunc(func() {
		give := time.AfterFunc(10*time.Second, leave) // whoever waits for longer is harmed anyway
		l.wg.Wait()
		give.Stop()
		leave()
	})
}

// visit sends one request and checks its answer. A prompt that is given takes the place of a random one.
func (l *load) visit(ctx context.Context, id, prompt string) {
	c := completion.Random(rand.New(rand.NewPCG(rand.Uint64(), 0)), id)
	c.Stream = true
	if prompt != "" {
		c.Prompt = prompt
	}
	v := visit{at: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	v.first, v.err = l.ask(ctx, c)
	if v.first == 0 {
		v.first = time.Since(v.at)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
}

func (l *load) ask(ctx context.Context, c completion.Call) (first time.Duration, err error) {
	began := time.Now()
	resp, err := process.Send(ctx, http.DefaultClient, "http://"+l.addr+c.Path(), c.Body())
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return 0, fmt.Errorf("%s: %s", resp.Status, text)
	}
	body := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, body); err != nil {
		return 0, err
	}
	first = time.Since(began)
	rest, err := io.ReadAll(resp.Body)
	if err == nil {
		err = c.Check(append(body, rest...))
	}
	return first, err
}

// taken returns the visits in the order in which they began.
func (l *load) taken() []visit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.all)
	slices.SortFunc(all, func(a, b visit) int { return a.at.Compare(b.at) })
	return all
}

// watchStalls returns, once ctx has ended, the longest for which this process did not run.
func watchStalls(ctx context.Context) <-chan time.Duration {
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for last := time.Now(); process.SleepUntil(ctx, last.Add(20*time.Millisecond)); last = time.Now() {
			most = max(most, time.Since(last)-20*time.Millisecond)
		}
		longest <- most
	}()
	return longest
}
