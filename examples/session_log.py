"""A generated log of user -> sessions -> items whose probabilities are known.

A user likes a few themes, a session stays with one of them, and an item of the
session is drawn by its popularity, a Zipf law, among the items of the theme
that are out by then. Some items, though, are drawn from a theme that has
nothing to do with the session. Half of the items come out as the days pass.

So a session that has begun says much about its next item, the sessions before
it say something about one that has not, and popularity alone says little. As
the probabilities are known, so is the best that any model can do.
"""

import dataclasses

import numpy as np

THEMES = 40
DAYS = 30
# Of the items of a session, those of any theme.
_STRAY_SHARE = 0.25
_ZIPF_OF_ITEMS = 1.0
_ZIPF_OF_THEMES = 0.5
# Of a user's sessions, those on the themes that they like most, second most ...
_TASTE = (0.6, 0.3, 0.1)
_MEAN_SESSIONS = 9
_MEAN_ITEMS = 4


@dataclasses.dataclass(frozen=True)
class SessionLog:
    """All users, one after another; the sessions of each in order of time.

    Attributes:
        items: int64 keys `[N]`, those of a session one after another.
        items_of_sessions: Lengths `[S]`, of one or more items each.
        sessions_of_users: Lengths `[U]`, of one or more sessions each.
        session_of_item: `[N]`, ascending.
        user_of_session: `[S]`, ascending.
        days: Of the sessions, `[S]`, 0 to DAYS - 1.
        tastes: How likely a session of a user is on each theme, `[U, THEMES]`;
            no model is told.
        catalogue: What the items were drawn from; no model is told.
    """

    items: np.ndarray
    items_of_sessions: np.ndarray
    sessions_of_users: np.ndarray
    session_of_item: np.ndarray
    user_of_session: np.ndarray
    days: np.ndarray
    tastes: np.ndarray
    catalogue: "Catalogue"

    def probabilities(self, places: np.ndarray) -> np.ndarray:
        """How likely each item of the catalogue was to be at the places.

        That is to one who knows the tastes of users and the catalogue, and
        tells the theme of a session from its items so far, by Bayes' rule.

        Args:
            places: In `items`, `[B]`.
        """
        session = self.session_of_item[places]
        begins = np.cumsum(self.items_of_sessions) - self.items_of_sessions
        so_far = places - begins[session]
        row = np.repeat(np.arange(len(places)), so_far)
        distance = np.arange(len(row)) - np.repeat(
            np.cumsum(so_far) - so_far, so_far
        )
        before = self.items[places[row] - 1 - distance]
        seen = np.zeros((len(places), THEMES))
        np.add.at(seen, (row, self.catalogue.theme(before)), 1)
        # An item of theme t is that much likelier in a session on t.
        stray = _STRAY_SHARE * self.catalogue.theme_popularity
        likelier = (1 - _STRAY_SHARE + stray) / stray
        theme = self.tastes[self.user_of_session[session]] * likelier**seen
        theme /= theme.sum(axis=1, keepdims=True)
        return self.catalogue.probabilities(theme, self.days[session])


class Catalogue:
    """Items by theme, how popular they are, and since when they are out.

    Attributes:
        keys: int64 keys of the items `[I]`.
        theme_popularity: `[THEMES]`, of sum 1.
    """

    def __init__(self, rng: np.random.Generator, num_items: int):
        self.keys = _distinct_keys(rng, num_items)
        self._order = np.argsort(self.keys)
        popularity = _zipf(np.arange(THEMES), _ZIPF_OF_THEMES)
        self.theme_popularity = rng.permutation(popularity / popularity.sum())
        # The items of a theme lie together, the most popular one first.
        self._theme = np.sort(np.arange(num_items) % THEMES)
        self._begins = np.searchsorted(self._theme, np.arange(THEMES))
        rank = np.arange(num_items) - self._begins[self._theme]
        self._weight = _zipf(rank, _ZIPF_OF_ITEMS)
        self._out_since = rng.integers(1, DAYS, num_items)
        self._out_since[rng.random(num_items) < 0.5] = 0
        self._out_since[self._begins] = 0  # no theme is ever empty

    def draw(
        self, rng: np.random.Generator, theme: np.ndarray, day: np.ndarray
    ) -> np.ndarray:
        """Items of the themes that are out on the days, `[N]`."""
        upto = np.cumsum(self._weight)
        low = (upto - self._weight)[self._begins]
        high = np.append(low[1:], upto[-1])
        ends = np.append(self._begins[1:], len(upto))
        drawn = np.zeros(len(theme), np.int64)
        todo = np.arange(len(theme))
        while todo.size:  # those that are not out yet are drawn again
            t = theme[todo]
            at = np.searchsorted(upto, rng.uniform(low[t], high[t]), "right")
            drawn[todo] = np.clip(at, self._begins[t], ends[t] - 1)
            todo = todo[self._out_since[drawn[todo]] > day[todo]]
        return self.keys[drawn]

    def theme(self, items: np.ndarray) -> np.ndarray:
        """The themes of items, `[N]`."""
        at = np.searchsorted(self.keys, items, sorter=self._order)
        return self._theme[self._order[at]]

    def probabilities(self, theme: np.ndarray, day: np.ndarray) -> np.ndarray:
        """How likely each item is to be the next one, `[B, I]`.

        Args:
            theme: How likely the session is to be on each theme,
                `[B, THEMES]`.
            day: Of the session, `[B]`.
        """
        weight = self._weight * (self._out_since <= day[:, None])
        weight /= np.add.reduceat(weight, self._begins, axis=1)[:, self._theme]
        of_theme = (1 - _STRAY_SHARE) * theme
        of_theme += _STRAY_SHARE * self.theme_popularity
        return weight * of_theme[:, self._theme]


def generate(num_users: int, num_items: int, seed: int) -> SessionLog:
    """Draws a log; the same arguments give the same one.

    Args:
        num_users: Number of users.
        num_items: Number of items, THEMES or more.
        seed: Of all that is drawn.
    """
    rng = np.random.default_rng(seed)
    catalogue = Catalogue(rng, num_items)
    tastes = _tastes(rng, catalogue.theme_popularity, num_users)
    sessions_of_users = rng.geometric(1 / _MEAN_SESSIONS, num_users)
    user = np.repeat(np.arange(num_users), sessions_of_users)
    days = rng.integers(0, DAYS, len(user))
    days = days[np.lexsort((days, user))]
    themes = _choose(rng, tastes[user])

    items_of_sessions = 1 + rng.poisson(_MEAN_ITEMS - 1, len(user))
    session = np.repeat(np.arange(len(user)), items_of_sessions)
    theme = themes[session]
    stray = rng.random(len(theme)) < _STRAY_SHARE
    theme[stray] = rng.choice(
        THEMES, int(stray.sum()), p=catalogue.theme_popularity
    )
    return SessionLog(
        items=catalogue.draw(rng, theme, days[session]),
        items_of_sessions=items_of_sessions,
        sessions_of_users=sessions_of_users,
        session_of_item=session,
        user_of_session=user,
        days=days,
        tastes=tastes,
        catalogue=catalogue,
    )


def _tastes(
    rng: np.random.Generator, popularity: np.ndarray, num_users: int
) -> np.ndarray:
    """A few themes for each user, drawn by popularity, `[U, THEMES]`."""
    # The largest of these are such a draw, without one theme twice.
    keys = np.log(popularity) + rng.gumbel(size=(num_users, THEMES))
    liked = np.argsort(-keys, axis=1)[:, : len(_TASTE)]
    tastes = np.zeros((num_users, THEMES))
    np.put_along_axis(tastes, liked, np.array(_TASTE), axis=1)
    return tastes


def _choose(rng: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
    """One column of each row."""
    upto = np.cumsum(probabilities, axis=1)
    upto /= upto[:, -1:]
    return np.sum(upto <= rng.random((len(upto), 1)), axis=1)


def _zipf(rank: np.ndarray, exponent: float) -> np.ndarray:
    return (rank + 1.0) ** -exponent


def _distinct_keys(rng: np.random.Generator, count: int) -> np.ndarray:
    """As hashes are: anywhere among all int64, in no order."""
    keys = np.zeros(0, np.int64)
    limits = np.iinfo(np.int64)
    while len(keys) < count:
        more = rng.integers(limits.min, limits.max, count, endpoint=True)
        keys = np.unique(np.concatenate([keys, more]))
    return rng.permutation(keys)[:count]
