package main

import "sort"

const dims = 3

// amounts are millicores of CPU, bytes of memory, pods.
type amounts [dims]int64

// picture is the ledger as it is handed over: of each node what is free beside claims, and what its holds take.
type picture struct {
	// Priority of the holds: who is above does not see them.
	Priority int32     `json:"priority"`
	Largest  amounts   `json:"largest"`
	Nodes    []place   `json:"nodes"`
	Policies []selects `json:"policies"`
}

type place struct {
	Name  string  `json:"name"`
	Free  amounts `json:"free"`
	Held  amounts `json:"held"`
	Holds int     `json:"holds"`
}

type selects struct {
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

type flight struct {
	need amounts
	rows []int32
}

type ledger struct {
	priority int32
	largest  [dims]float64
	nodes    []place
	charged  []amounts
	rank     []int
	index    map[string]int32
	policies map[string][]selects
	flights  map[string]flight
}

func newLedger(seen *picture) *ledger {
	l := &ledger{
		priority: seen.Priority,
		nodes:    seen.Nodes,
		charged:  make([]amounts, len(seen.Nodes)),
		rank:     make([]int, len(seen.Nodes)),
		index:    make(map[string]int32, len(seen.Nodes)),
		policies: map[string][]selects{},
		flights:  map[string]flight{},
	}
	order := make([]int, len(seen.Nodes))
	for row, node := range seen.Nodes {
		l.index[node.Name] = int32(row)
		order[row] = row
	}
	sort.Slice(order, func(i, j int) bool { return l.nodes[order[i]].Name < l.nodes[order[j]].Name })
	for position, row := range order {
		l.rank[row] = position
	}
	for dim, most := range seen.Largest {
		l.largest[dim] = float64(max(most, 1))
	}
	for _, one := range seen.Policies {
		l.policies[one.Namespace] = append(l.policies[one.Namespace], one)
	}
	return l
}

// filter answers the nodes that the pod may use, and charges it there.
func (l *ledger) filter(pod *pod, need amounts, names []string) []string {
	uid := pod.Metadata.UID
	l.land(uid)
	if pod.alwaysPasses() {
		return names
	}
	if l.ownedBy(pod) != nil {
		return nil // an owner's own holds are no part of this program
	}
	above := pod.Spec.Priority > l.priority
	open := make([]string, 0, len(names))
	rows := make([]int32, 0, len(names))
	for _, name := range names {
		row, known := l.index[name]
		if known && (above || l.nodes[row].Holds == 0) && fits(need, l.nodes[row].Free) {
			open = append(open, name)
			rows = append(rows, row)
		}
	}
	if len(open) == 0 && !above {
		if best := l.tightest(need, names); best >= 0 {
			open = append(open, l.nodes[best].Name)
			rows = append(rows, best)
		}
	}
	if len(open) > 0 {
		l.charge(rows, need, 1)
		l.flights[uid] = flight{need, rows}
	}
	return open
}

// land takes the charge of a pod back: it is bound, and counted, or asks anew.
func (l *ledger) land(uid string) {
	if before, flies := l.flights[uid]; flies {
		l.charge(before.rows, before.need, -1)
		delete(l.flights, uid)
	}
}

func (l *ledger) charge(rows []int32, need amounts, sign int64) {
	for _, row := range rows {
		for dim, amount := range need {
			l.charged[row][dim] += sign * amount
		}
	}
}

// tightest is the node with holds where least is left over beside them; ties by name; -1: none has enough.
func (l *ledger) tightest(need amounts, names []string) int32 {
	best, least := int32(-1), 0.0
	for _, name := range names {
		row, known := l.index[name]
		if !known || l.nodes[row].Holds == 0 {
			continue
		}
		slack := l.nodes[row].Free
		for dim := range slack {
			slack[dim] -= l.charged[row][dim] + l.nodes[row].Held[dim]
		}
		if !fits(need, slack) {
			continue
		}
		over := 0.0
		for dim, there := range slack {
			over += float64(there-need[dim]) / l.largest[dim]
		}
		if best < 0 || over < least || (over == least && l.rank[row] < l.rank[best]) {
			best, least = row, over
		}
	}
	return best
}

func fits(need, there amounts) bool {
	for dim, amount := range need {
		if amount > 0 && there[dim] < amount {
			return false
		}
	}
	return true
}

// ownedBy is the policy that selects the pod, or nil.
func (l *ledger) ownedBy(pod *pod) *selects {
	candidates := l.policies[pod.Metadata.Namespace]
	for i := range candidates {
		if matches(candidates[i].Labels, pod.Metadata.Labels) {
			return &candidates[i]
		}
	}
	return nil
}

func matches(wanted, labels map[string]string) bool {
	for key, value := range wanted {
		if there, has := labels[key]; !has || there != value {
			return false
		}
	}
	return true
}
