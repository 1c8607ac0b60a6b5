"""Mitsuba's CUDA variant against its LLVM variant: a picture, and a fit of a material.

Mitsuba traces rays through a scene with OptiX, which rgpu does not have.  So the shapes are
intersected one by one; camera, materials, samplers and film are Mitsuba's.  The LLVM variant needs
LLVM 16 or later (Debian: libllvm19).
"""

import glob
import os

import drjit as dr
import mitsuba as mi
import numpy as np
import pytest

LIBRARIES = sorted(
    glob.glob("/usr/lib/*/libLLVM.so.1[6-9]*") + glob.glob("/usr/lib/*/libLLVM.so.2*")
)
if LIBRARIES:
    os.environ.setdefault("DRJIT_LIBLLVM_PATH", LIBRARIES[-1])
WIDTH, HEIGHT, SAMPLES = 64, 48, 8
COLOUR = (0.8, 0.3, 0.1)


def plastic(colour):
    reflectance = {"type": "rgb", "value": list(colour)}
    return {"type": "roughplastic", "alpha": 0.2, "diffuse_reflectance": reflectance}


def shapes(colour):
    look = mi.ScalarTransform4f
    floor = look().translate([0, -1, 0]).rotate([1, 0, 0], -90).scale(4)
    return [
        mi.load_dict({"type": "sphere", "radius": 1.0, "bsdf": plastic(colour)}),
        mi.load_dict({"type": "rectangle", "to_world": floor, "bsdf": {"type": "diffuse"}}),
    ]


def camera():
    return mi.load_dict(
        {
            "type": "perspective",
            "fov": 45,
            "to_world": mi.ScalarTransform4f().look_at([0, 1, 4], [0, 0, 0], [0, 1, 0]),
            "film": {
                "type": "hdrfilm",
                "width": WIDTH,
                "height": HEIGHT,
                "rfilter": {"type": "box"},
            },
        }
    )


def render(scene, seed=1):
    """Returns the picture of shapes under a distant light, with its shadows."""
    sensor, sampler = camera(), mi.load_dict({"type": "independent"})
    count = WIDTH * HEIGHT * SAMPLES
    sampler.seed(seed, count)
    pixel = dr.arange(mi.UInt32, count) // SAMPLES
    place = mi.Point2f(pixel % WIDTH, pixel // WIDTH) + sampler.next_2d()
    ray, _ = sensor.sample_ray(0, 0.5, place / mi.Point2f(WIDTH, HEIGHT), mi.Point2f(0.5))
    hits = [shape.ray_intersect_preliminary(ray) for shape in scene]
    light, total = dr.normalize(mi.Vector3f(1, 2, 1.5)), mi.Color3f(0)
    for shape, hit in zip(scene, hits, strict=True):
        nearest = hit.is_valid() & (hit.t == dr.minimum(hits[0].t, hits[1].t))
        surface = hit.compute_surface_interaction(ray, active=nearest)
        away = surface.spawn_ray(light)
        lit = nearest & ~(scene[0].ray_test(away) | scene[1].ray_test(away))
        value = shape.bsdf().eval(mi.BSDFContext(), surface, surface.to_local(light), lit)
        total += dr.select(lit, value, 0)
    film = sensor.film()
    film.prepare([])
    block = film.create_block()
    block.put(place, ray.wavelengths, total)
    film.put_block(block)
    return film.develop()


def picture(variant):
    mi.set_variant(variant)
    return np.array(render(shapes(COLOUR)))


def fitted(variant):
    """Returns the colour after some steps of gradient descent on the difference of pictures."""
    mi.set_variant(variant)
    target = render(shapes(COLOUR))
    scene = shapes((0.5, 0.5, 0.5))
    parameters = mi.traverse(scene[0])
    key = "bsdf.diffuse_reflectance.value"
    optimizer = mi.ad.Adam(lr=0.05)
    optimizer[key] = parameters[key]
    losses = []
    for _ in range(30):
        parameters.update(optimizer)
        loss = dr.mean(dr.square(render(scene) - target), axis=None)
        dr.backward(loss)
        optimizer.step()
        optimizer[key] = dr.clip(optimizer[key], 0.0, 1.0)
        losses.append(float(np.array(loss).ravel()[0]))
    assert losses[-1] < losses[0] / 20
    return np.array(optimizer[key]).ravel()


@pytest.fixture(autouse=True, scope="module")
def both_variants():
    assert {"cuda_ad_rgb", "llvm_ad_rgb"} <= set(mi.variants())


def test_a_picture():
    found, expected = picture("cuda_ad_rgb"), picture("llvm_ad_rgb")
    assert found.shape == (HEIGHT, WIDTH, 3)
    assert expected.mean() > 0.02
    # Rays that meet an edge may fall on either side.
    assert np.mean(np.abs(found - expected) > 1e-4 * expected.max()) < 1e-3


def test_a_fit():
    found, expected = fitted("cuda_ad_rgb"), fitted("llvm_ad_rgb")
    np.testing.assert_allclose(found, COLOUR, atol=0.05)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_rays_through_a_scene():
    mi.set_variant("cuda_ad_rgb")
    assert np.array(mi.render(mi.load_dict(mi.cornell_box()), spp=1)).shape == (256, 256, 3)
