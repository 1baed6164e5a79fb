"""Generated requests never cause an error of the server."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from serving_runs import Serve

import barograph
from barograph.apps.page.http.app import ENDPOINTS
from barograph.apps.page.http.endpoints import description

OPERATIONS = [(endpoint.method, endpoint.path) for endpoint in ENDPOINTS]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_makes_the_server_fail(method: str, path: str, serve: Serve, demo: barograph.Run):
    """Neither valid nor invalid ones; every status is a documented one."""
    client = serve()
    schema = schemathesis.openapi.from_dict(description(ENDPOINTS))
    operation = schema[path][method]

    @settings(
        max_examples=12,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @schemathesis_given(operation)
    def check(case: schemathesis.Case) -> None:
        if "run" in case.path_parameters:
            case.path_parameters["run"] = "demo"
        response = case.call(base_url=str(client.base_url).rstrip("/"))
        case.validate_response(response, checks=[not_a_server_error, status_code_conformance, content_type_conformance])

    check()


def schemathesis_given(operation):  # type: ignore[no-untyped-def]
    """Return hypothesis' ``given`` for the requests of an endpoint."""
    from hypothesis import given

    return given(case=operation.as_strategy())


def test_the_description_is_served(serve: Serve):
    """It lists every endpoint."""
    described = serve().get("/api/openapi.json").json()
    assert {(m.upper(), p) for p, methods in described["paths"].items() for m in methods} == {
        *OPERATIONS,
        ("GET", "/api/live"),
    }


def test_unknown_methods_are_rejected(serve: Serve):
    """DELETE is not allowed."""
    assert httpx.delete(f"{serve().base_url}/api/runs").status_code == 405
