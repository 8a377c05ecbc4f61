package router

// crowd is the waiters of a line by client, whatever their priority. It tells whose waiter leaves a line that is full.
type crowd struct {
	clients map[uint64]*client // by Want.Flow
	sizes   [][]*client        // those with n waiters are in sizes[n]
	most    int                // waiters of a client
}

type client struct {
	waiters int
	at      int     // in sizes[waiters]
	newest  *waiter // the others follow it by their older
}

func (c *crowd) add(wt *waiter) {
	x := c.clients[wt.want.Flow]
	if x == nil {
		if x = new(client); c.clients == nil {
			c.clients = map[uint64]*client{}
		}
		c.clients[wt.want.Flow] = x
	}
	wt.client, wt.older, wt.newer = x, x.newest, nil
	if x.newest != nil {
		x.newest.newer = wt
	}
	x.newest = wt
	c.resize(x, x.waiters+1)
}

func (c *crowd) remove(wt *waiter) {
	x := wt.client
	if wt.newer == nil {
		x.newest = wt.older
	} else {
		wt.newer.older = wt.older
	}
	if wt.older != nil {
		wt.older.newer = wt.newer
	}
	if c.resize(x, x.waiters-1); x.waiters == 0 {
		delete(c.clients, wt.want.Flow)
	}
}

// resize moves x to the end of the clients with n waiters.
func (c *crowd) resize(x *client, n int) {
	if was := c.sizes; x.waiters > 0 {
		list := was[x.waiters]
		last := len(list) - 1
		list[x.at], list[last].at = list[last], x.at
		list[last] = nil
		was[x.waiters] = list[:last]
	}
	x.waiters = n
	for len(c.sizes) <= n {
		c.sizes = append(c.sizes, nil)
	}
	if n > 0 {
		x.at = len(c.sizes[n])
		c.sizes[n] = append(c.sizes[n], x)
	}
	for c.most = max(c.most, n); c.most > 0 && len(c.sizes[c.most]) == 0; {
		c.most--
	}
}

// newest is the newest waiter of the client that has most. If several have as many, and the one that joined last is
// of one of them, it is that one.
func (c *crowd) newest() *waiter {
	list := c.sizes[c.most]
	return list[len(list)-1].newest
}
